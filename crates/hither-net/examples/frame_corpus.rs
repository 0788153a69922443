//! Writes the fuzzer's start corpus of frames to the subfolder `frame` of the folder in the first
//! argument.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use hither_net::frame::FrameHeader;

fn main() -> std::io::Result<()> {
    let corpus = std::env::args_os().nth(1).expect("the folder to write");
    let folder = PathBuf::from(corpus).join("frame");
    fs::create_dir_all(&folder)?;
    // The first byte says where the fuzz target cuts the rest in two.
    let mut all = vec![50];
    for (request, head, payload) in [(1, "head", "payload"), (2, "", ""), (3, "", "payload")] {
        let header = FrameHeader {
            kind: 1,
            epoch: 7,
            request,
            deadline_ms: 100,
        };
        let payload = Bytes::from_static(payload.as_bytes());
        let frame = header
            .encode_parts(head.as_bytes(), payload)
            .expect("a short body");
        let one = frame.parts().map(|part| &part[..]).concat();
        all.extend_from_slice(&one);
        fs::write(folder.join(request.to_string()), [&[0], &one[..]].concat())?;
    }
    fs::write(folder.join("all"), all)
}
