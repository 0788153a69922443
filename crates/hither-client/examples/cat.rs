//! Prints files of a mount, read past the kernel: `cat FILE...`.

use std::io::Write;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let mut data = vec![0; 1 << 20];
    for path in std::env::args_os().skip(1).map(PathBuf::from) {
        let file = hither_client::open(&path)?;
        let mut offset = 0;
        while offset < file.len() {
            let bytes = file.read_at(&mut data, offset)?;
            stdout.write_all(&data[..bytes])?;
            offset += bytes as u64;
        }
    }
    Ok(())
}
