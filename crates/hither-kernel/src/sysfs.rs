//! What /sys and /proc say, and in which formats: among it the CPUs that are online.

use std::fs;
use std::io;

/// The CPUs that are online.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    fs::read_to_string("/sys/devices/system/cpu/online").map(|list| parse_list(&list))
}

/// The kernel's list format: `0-3,8,10-11`.
pub fn parse_list(list: &str) -> Vec<u32> {
    /// More CPUs than any machine has: a list that says otherwise is not believed.
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(CPUS_MAX));
        }
    }
    cpus
}

/// A line `NAME  123 kB` somewhere in `text`, in bytes.
pub fn kib_field(text: &str, name: &str) -> u64 {
    let mut words = text
        .split_whitespace()
        .skip_while(|&word| word != name)
        .skip(1);
    let kib = words.next().and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list(""), Vec::<u32>::new());
        assert_eq!(parse_list("x,1-y,7"), [7]);
        assert_eq!(parse_list("3-1"), Vec::<u32>::new());
    }
}
