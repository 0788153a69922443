//! The first messages on a connection, by which both sides learn whether they fit.
//!
//! The side that dialled sends a hello; the other one answers with a welcome, which looks the same,
//! or with a refusal, which is a text. All of them start with the same 8 bytes: `hthr`, the
//! sender's protocol version, the message's type, and the length of the rest (two bytes, little
//! end first). These 8 bytes and the refusal stay as they are in all versions, so that nodes of
//! different versions can say so.
//!
//! The rest of a hello: instance (8 bytes), epoch (8 bytes), and cluster and member name, each
//! preceded by its length in one byte.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::error::LinkError;
use crate::frame::PROTOCOL;
use crate::view::check_name;

const MAGIC: [u8; 4] = *b"hthr";
const PREFIX_BYTES: usize = 8;
const HELLO_BYTES_MAX: usize = 1024;
const REFUSAL_BYTES_MAX: usize = 512;
/// The longest name of a cluster.
pub(crate) const CLUSTER_BYTES_MAX: usize = 200;

const HELLO: u8 = 0;
const WELCOME: u8 = 1;
const REFUSAL: u8 = 2;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Drawn at random when the node starts: tells a restarted node from a second one.
    pub(crate) instance: u64,
    pub(crate) epoch: u64,
    pub(crate) cluster: String,
    pub(crate) name: String,
}

impl Hello {
    fn encode(&self, message: u8) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend_from_slice(&self.instance.to_le_bytes());
        rest.extend_from_slice(&self.epoch.to_le_bytes());
        for name in [&self.cluster, &self.name] {
            rest.push(u8::try_from(name.len()).expect("names are checked at the start"));
            rest.extend_from_slice(name.as_bytes());
        }
        with_prefix(message, &rest)
    }

    fn decode(mut bytes: &[u8]) -> Result<Hello, LinkError> {
        let mut take = |count: usize| {
            let (taken, rest) = bytes
                .split_at_checked(count)
                .ok_or(LinkError::Hello("short"))?;
            bytes = rest;
            Ok::<&[u8], LinkError>(taken)
        };
        let mut number = || {
            let bytes: [u8; 8] = take(8)?.try_into().expect("eight bytes");
            Ok::<u64, LinkError>(u64::from_le_bytes(bytes))
        };
        let (instance, epoch) = (number()?, number()?);
        let mut text = || {
            let length = usize::from(take(1)?[0]);
            let text = std::str::from_utf8(take(length)?);
            text.map(str::to_owned)
                .map_err(|_| LinkError::Hello("a name that is no text"))
        };
        let (cluster, name) = (text()?, text()?);
        if check_name(&name).is_err() || cluster.chars().any(char::is_control) {
            return Err(LinkError::Hello("a name that is not allowed"));
        }
        Ok(Hello {
            instance,
            epoch,
            cluster,
            name,
        })
    }
}

fn with_prefix(message: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + rest.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[PROTOCOL, message]);
    let length = u16::try_from(rest.len()).expect("a hello is short");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

/// Reads a message: its protocol version, type and rest.
async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Result<(u8, u8, Vec<u8>), LinkError> {
    let mut prefix = [0; PREFIX_BYTES];
    stream.read_exact(&mut prefix).await?;
    if prefix[..4] != MAGIC {
        return Err(LinkError::Magic);
    }
    let length = usize::from(u16::from_le_bytes([prefix[6], prefix[7]]));
    if length > HELLO_BYTES_MAX {
        return Err(LinkError::Hello("too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    Ok((prefix[4], prefix[5], rest))
}

/// The dialling side: says who this node is, and learns who the other one is.
pub(crate) async fn introduce(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    own: &Hello,
) -> Result<Hello, LinkError> {
    stream.write_all(&own.encode(HELLO)).await?;
    stream.flush().await?;
    match receive(stream).await? {
        (PROTOCOL, WELCOME, rest) => Hello::decode(&rest),
        (protocol, _, _) if protocol != PROTOCOL => Err(LinkError::Protocol(protocol)),
        (_, REFUSAL, text) => {
            let text: String = String::from_utf8_lossy(&text)
                .chars()
                .filter(|character| !character.is_control())
                .collect();
            Err(LinkError::Refused(text))
        }
        _ => Err(LinkError::Hello("an unknown message")),
    }
}

/// The side that was dialled: learns who the other one is.
pub(crate) async fn expect_hello(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Hello, LinkError> {
    match receive(stream).await? {
        (PROTOCOL, HELLO, rest) => Hello::decode(&rest),
        (PROTOCOL, _, _) => Err(LinkError::Hello("an unknown message")),
        (protocol, _, _) => Err(LinkError::Protocol(protocol)),
    }
}

/// The side that was dialled: accepts the other one.
pub(crate) async fn welcome(
    stream: &mut (impl AsyncWrite + Unpin),
    own: &Hello,
) -> Result<(), LinkError> {
    stream.write_all(&own.encode(WELCOME)).await?;
    Ok(stream.flush().await?)
}

/// The side that was dialled: tells the other one why it is not accepted.
pub(crate) async fn refuse(
    stream: &mut (impl AsyncWrite + Unpin),
    why: &str,
) -> Result<(), LinkError> {
    let mut text = why.to_owned();
    while text.len() > REFUSAL_BYTES_MAX {
        text.pop();
    }
    stream
        .write_all(&with_prefix(REFUSAL, text.as_bytes()))
        .await?;
    Ok(stream.shutdown().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            instance: 5,
            epoch: 7,
            cluster: "test".to_owned(),
            name: "a".to_owned(),
        }
    }

    #[test]
    fn any_bytes_are_a_hello_or_an_error() {
        let sound = hello().encode(HELLO);
        assert_eq!(Hello::decode(&sound[PREFIX_BYTES..]).unwrap(), hello());
        for length in 0..sound.len() - PREFIX_BYTES {
            assert!(Hello::decode(&sound[PREFIX_BYTES..][..length]).is_err());
        }
        assert!(Hello::decode(&[255; 100]).is_err());
    }

    #[tokio::test]
    async fn both_sides_of_two_versions_say_so() {
        let (mut dialled, mut other) = tokio::io::duplex(4096);
        let newer = async {
            let mut prefix = [0; PREFIX_BYTES];
            other.read_exact(&mut prefix).await.unwrap();
            let mut answer = with_prefix(REFUSAL, b"go away");
            answer[4] = PROTOCOL + 1;
            other.write_all(&answer).await.unwrap();
        };
        let own = hello();
        let (answer, ()) = tokio::join!(introduce(&mut dialled, &own), newer);
        let said = format!("it runs protocol {}, this node {PROTOCOL}", PROTOCOL + 1);
        assert_eq!(answer.unwrap_err().to_string(), said);

        let mut bytes = hello().encode(HELLO);
        bytes[4] = 9;
        let error = expect_hello(&mut &bytes[..]).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("it runs protocol 9, this node {PROTOCOL}")
        );
        let error = expect_hello(&mut &b"GET / HTTP/1.1\r\n"[..])
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "it does not speak this protocol");
    }

    #[tokio::test]
    async fn a_refusal_says_why() {
        let (mut one, mut other) = tokio::io::duplex(4096);
        let refuser = async {
            assert_eq!(expect_hello(&mut other).await.unwrap(), hello());
            refuse(&mut other, "no room").await.unwrap();
        };
        let own = hello();
        let (answer, ()) = tokio::join!(introduce(&mut one, &own), refuser);
        assert_eq!(
            answer.unwrap_err().to_string(),
            "it refuses this node: no room"
        );
    }
}
