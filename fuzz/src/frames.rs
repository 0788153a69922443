//! Reads arbitrary bytes as the frames of a connection.

use bytes::BytesMut;

use crate::frame::{BODY_BYTES_MAX, Decoded, HEADER_BYTES, RESERVE_BYTES_MAX, decode, reserve};

/// The bytes arrive in two pieces, of which the first byte says where the first one ends. Each
/// frame that comes out is what its sender could have sent; no more memory is reserved than is
/// allowed.
pub(crate) fn read(bytes: &[u8]) {
    let Some((&split, bytes)) = bytes.split_first() else {
        return;
    };
    let (one, other) = bytes.split_at(usize::from(split).min(bytes.len()));
    let mut buffer = BytesMut::new();
    let mut taken = 0;
    for piece in [one, other] {
        buffer.extend_from_slice(piece);
        loop {
            let before = buffer.len();
            match decode(&mut buffer) {
                Ok(Decoded::Frame(frame)) => {
                    assert!(frame.body.len() <= BODY_BYTES_MAX);
                    assert_eq!(before - buffer.len(), HEADER_BYTES + frame.body.len());
                    taken += before - buffer.len();
                    let again = frame.header.encode_parts(&[], frame.body.clone());
                    assert_eq!(
                        again.expect("it was sent").len(),
                        HEADER_BYTES + frame.body.len()
                    );
                }
                Ok(Decoded::Missing(missing)) => {
                    assert!(missing > 0);
                    assert_eq!(buffer.len(), before);
                    reserve(&mut buffer, missing);
                    assert!(buffer.capacity() <= 2 * (bytes.len() + RESERVE_BYTES_MAX));
                    break;
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return;
                }
            }
        }
    }
    assert_eq!(taken + buffer.len(), bytes.len());
}
