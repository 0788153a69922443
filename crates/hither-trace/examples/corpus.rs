//! Writes the fuzzer's start corpus to the folder in the first argument: a subfolder per format,
//! with the sample of the tests, plain and compressed. So no corpus is kept in the repository, and
//! a new format has one at once.

#[path = "../tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::PathBuf;

use common::Sample;
use common::samples::{bzip2, gzipped, lcs, samples, vscsi_2, xz, zstd};
use hither_trace::schema::FILES;

fn main() -> std::io::Result<()> {
    let corpus = std::env::args_os().nth(1).expect("the folder to write");
    let put = |format: &str, name: &str, bytes: &[u8]| {
        let folder = PathBuf::from(&corpus).join(format);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)
    };
    for (format, bytes) in samples() {
        put(format, "plain", &bytes)?;
        put(format, "bzip2", &bzip2(&bytes))?;
        put(format, "gzip", &gzipped(&bytes))?;
        put(format, "zstd", &zstd(&bytes))?;
        put(format, "xz", &xz(&bytes))?;
    }
    put("vscsi", "version-2", &vscsi_2(7))?;
    put("vscsi-requests", "version-2", &vscsi_2(7))?;
    for version in 1..=8 {
        let bytes = lcs(8192, version, &[7, 8, 7]);
        put("lcs", &format!("version-{version}"), &bytes)?;
    }
    let columns = "columns{key=1,time=2,op=3,count=4,header=no}";
    put(columns, "comma", b"a,0,get,2\n\"b,c\",1.5,SET,1\na,2,r,0\n")?;
    put(columns, "tab", b"a\t0\tget\t2\n\"b\t\"\"c\"\t1.5\tw\t1\n")?;
    let columns = "columns{key=Id:hex,size=2}";
    put(columns, "space", b"# id size\n1f 2\n0x20 \"3\"\n")?;
    // The fuzz target replaces one file of a valid folder. Its first byte says which.
    let folder = tempfile::tempdir()?;
    let sound = folder.path().join("sound");
    Sample::new(20).write(&sound, false).expect("a sound trace");
    for (number, name) in FILES.into_iter().enumerate() {
        let mut bytes = vec![number as u8];
        bytes.extend(fs::read(sound.join(name))?);
        put("hither", name, &bytes)?;
    }
    Ok(())
}
