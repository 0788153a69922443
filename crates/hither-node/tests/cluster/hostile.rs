//! Members that are hostile, that may not have a volume, that have left, or that run another
//! version.

use std::io::{Read, Write};
use std::sync::OnceLock;

use hither_net::frame::{Frame, FrameHeader, PROTOCOL};
use hither_net::mesh::{Handler, Mesh};
use hither_net::view::{MemberId, View};
use hither_node::announcements::ChangeListener;
use hither_node::protocol::{Message, Request, Urgency, wire};

use super::*;

/// The kinds of frames.
const MESSAGE: u8 = 1;
const BLOCK: u8 = 2;

/// What the hostile member answers when it is asked for blocks as their home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Blocks of its own making.
    Forged,
    /// That the reader may read the source, and is to send it the blocks.
    KeeperIsMe,
    /// That it holds them itself; and blocks of its own making.
    HolderIsMe,
}

/// A member that answers pings as others do, and requests as it likes.
struct Hostile {
    me: MemberId,
    answer: Answer,
    mesh: OnceLock<Mesh>,
    asked: AtomicU64,
    got_blocks: AtomicU64,
}

impl Hostile {
    /// Starts it with a view of its own.
    fn start(
        runtime: &Runtime,
        listen: SocketAddr,
        answer: Answer,
        epoch: u64,
        members: &[Member],
    ) -> Arc<Hostile> {
        let config = MeshConfig {
            me: "evil".to_owned(),
            cluster: "test".to_owned(),
            listen,
            security: Security::Off,
            limits: Limits::default(),
        };
        let hostile = Arc::new(Hostile {
            me: MemberId::of("evil"),
            answer,
            mesh: OnceLock::new(),
            asked: AtomicU64::new(0),
            got_blocks: AtomicU64::new(0),
        });
        let mesh = runtime
            .block_on(Mesh::start(config, hostile.clone()))
            .unwrap();
        mesh.set_view(&View::new(epoch, members.to_vec()).unwrap());
        let _ = hostile.mesh.set(mesh);
        hostile
    }

    fn mesh(&self) -> &Mesh {
        self.mesh.get().unwrap()
    }

    fn tell(&self, to: MemberId, message: &Message) {
        let mut body = Vec::new();
        wire::encode(message, &mut body);
        let header = FrameHeader {
            kind: MESSAGE,
            epoch: u64::MAX,
            ..FrameHeader::default()
        };
        let _ = self.mesh().send(to, header.encode(&body).unwrap());
    }

    fn send_forged(&self, to: MemberId, blocks: hither_node::protocol::Blocks, request: u64) {
        for key in blocks.chunk.blocks(blocks.mask) {
            let mut head = key.file.0.to_le_bytes().to_vec();
            head.extend(key.index.to_le_bytes());
            head.push(1);
            let header = FrameHeader {
                kind: BLOCK,
                request,
                ..FrameHeader::default()
            };
            let forged = Bytes::from(vec![0x55; BLOCK_BYTES as usize]);
            let _ = self
                .mesh()
                .send(to, header.encode_parts(&head, forged).unwrap());
        }
    }
}

impl Handler for Hostile {
    fn on_frame(&self, from: MemberId, frame: Frame) {
        if frame.header.kind == BLOCK {
            self.got_blocks.fetch_add(1, Ordering::Relaxed);
        }
        if frame.header.kind != MESSAGE || self.mesh.get().is_none() {
            return;
        }
        match wire::decode(&frame.body).unwrap() {
            Message::Ping { round, .. } => {
                let incarnation = 7;
                self.tell(from, &Message::Pong { round, incarnation });
            }
            Message::Want { id, blocks, .. } => {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let member = self.me;
                // Whatever it may be good for.
                let request = Request {
                    member,
                    id,
                    urgency: Urgency::Demand,
                };
                let keep = hither_node::protocol::Keep::Copy;
                self.tell(
                    from,
                    &Message::Deliver {
                        request,
                        blocks,
                        keep,
                    },
                );
                match self.answer {
                    Answer::Forged => self.send_forged(from, blocks, id.0),
                    Answer::KeeperIsMe => {
                        let keeper = member;
                        self.tell(from, &Message::Grant { id, blocks, keeper });
                    }
                    Answer::HolderIsMe => {
                        let copies = Vec::new();
                        let holder = member;
                        self.tell(
                            from,
                            &Message::At {
                                id,
                                blocks,
                                holder,
                                copies,
                            },
                        );
                        self.tell(
                            from,
                            &Message::Expect {
                                blocks,
                                from: member,
                            },
                        );
                        self.send_forged(from, blocks, id.0);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_connected(&self, _: MemberId) {}

    fn on_disconnected(&self, _: MemberId) {}
}

/// Reads files of one block each, and checks every byte.
fn read_files(machine: &Machine, count: usize) {
    assert_eq!(wrong_files(machine, "file", count), 0);
}

/// Reads them, and counts those with wrong bytes.
fn wrong_files(machine: &Machine, name: &str, count: usize) -> usize {
    let (sender, receiver) = mpsc::channel();
    for number in 0..count {
        let file = open(machine, &format!("{name} {number}"), BLOCK_BYTES);
        start_read(&file, 0..BLOCK_BYTES, &sender);
    }
    let read = |_: &usize| {
        receiver
            .recv_timeout(Duration::from_secs(60))
            .unwrap()
            .is_err()
    };
    (0..count).filter(read).count()
}

#[test]
fn a_member_that_may_not_have_a_volume_is_not_believed_and_gets_nothing() {
    for answer in [Answer::Forged, Answer::KeeperIsMe, Answer::HolderIsMe] {
        let source = Arc::new(Counted::default());
        let runtime = Runtime::new().unwrap();
        let members = [member("n0", free_address()), member("evil", free_address())];
        let listen = members[1].address.parse().unwrap();
        let hostile = Hostile::start(&runtime, listen, answer, 1, &members);
        let shape = Shape {
            readers: &[only(&["n0"])],
            ..Shape::default()
        };
        let machine = start_node(0, &members, &source, &shape);
        until_connected(&machine, 1);
        read_files(&machine, 40);
        // Once more, from what is kept.
        read_files(&machine, 40);
        assert!(hostile.asked.load(Ordering::Relaxed) > 0, "{answer:?}");
        assert_eq!(hostile.got_blocks.load(Ordering::Relaxed), 0, "{answer:?}");
        let counters = machine.node.protocol_counters();
        assert!(counters.forbidden > 0, "{answer:?}: {counters:?}");
        if answer != Answer::KeeperIsMe {
            assert!(counters.unexpected_blocks > 0, "{answer:?}: {counters:?}");
        }
        machine.node.store().check();
    }
}

/// A member that may have a volume is trusted with its bytes, but where the source has a checksum.
#[test]
fn a_member_on_the_list_cannot_forge_a_file_whose_checksum_the_source_has() {
    let source = Arc::new(Counted::default());
    let runtime = Runtime::new().unwrap();
    let members = [member("n0", free_address()), member("evil", free_address())];
    let listen = members[1].address.parse().unwrap();
    let hostile = Hostile::start(&runtime, listen, Answer::HolderIsMe, 1, &members);
    let machine = start_node(0, &members, &source, &Shape::default());
    until_connected(&machine, 1);
    assert_eq!(wrong_files(&machine, "summed", 40), 0);
    assert!(hostile.asked.load(Ordering::Relaxed) > 0);
    let counters = machine.node.protocol_counters();
    assert!(counters.refused_blocks > 0, "{counters:?}");
    assert!(wrong_files(&machine, "file", 40) > 0);
}

#[test]
fn a_node_that_is_no_member_is_not_heard_whatever_it_claims_to_know() {
    let source = Arc::new(Counted::default());
    let runtime = Runtime::new().unwrap();
    let members = [member("n0", free_address()), member("evil", free_address())];
    let machine = start_node(0, &members[..1], &source, &Shape::default());
    let listen = members[1].address.parse().unwrap();
    let hostile = Hostile::start(&runtime, listen, Answer::Forged, u64::MAX, &members);
    let stats = || hostile.mesh().stats().remove(0);
    while stats().failed_connects < 5 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stats().connects, 0);
    read_files(&machine, 5);
    let counters = machine.node.protocol_counters();
    assert_eq!((counters.arrived_blocks, counters.strangers), (0, 0));
}

/// Two honest nodes, of which one alone has the list, and where a hash says who keeps a block.
#[test]
fn a_node_without_the_list_gets_no_block_and_hears_of_no_change() {
    #[derive(Default)]
    struct Heard(AtomicU64);
    impl ChangeListener for Heard {
        fn on_change(&self, _: &SourcePath) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let source = Arc::new(Counted::default());
    let list = only(&["n0", "n2"]);
    let shape = Shape {
        readers: &[list.clone(), Readers::default(), list],
        placement: "rendezvous",
        ..Shape::default()
    };
    let machines = cluster_with(3, &source, &shape);
    let [heard, may_hear] = [(), ()].map(|()| Arc::new(Heard::default()));
    for (number, listener) in [(1, &heard), (2, &may_hear)] {
        let listener: Arc<dyn ChangeListener> = listener.clone();
        machines[number].volume.listen(Arc::downgrade(&listener));
    }
    read_files(&machines[0], 100);
    read_all(&machines[2], 100);
    let path = SourcePath::new(b"a/name").unwrap();
    while may_hear.0.load(Ordering::Relaxed) == 0 {
        machines[0].volume.announce(&path);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(heard.0.load(Ordering::Relaxed), 0);
    let blocks = |number: usize| machines[number].node.store().usage().blocks;
    assert_eq!(blocks(1), 0);
    // Who may have them keeps some for the others.
    assert!(
        blocks(0) > 0 && blocks(2) > 0,
        "{} {}",
        blocks(0),
        blocks(2)
    );
    let stats = machines[1].node.mesh().unwrap().stats();
    let received: u64 = stats.iter().map(|it| it.received_bytes).sum();
    assert!(received < 20 * BLOCK_BYTES, "{received} bytes of messages");
}

/// A rolling upgrade: two members of one version, and one of the next.
#[test]
fn members_of_one_version_go_on_beside_one_of_the_next() {
    let source = Arc::new(Counted::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let next = member("next", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        // It refuses what it does not speak, as each version does.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut prefix = [0; 8];
            let _ = stream.read_exact(&mut prefix);
            let _ = stream.write_all(&[b"hthr", &[PROTOCOL + 1, 2, 0, 0][..]].concat());
        }
    });
    let members = [
        member("n0", free_address()),
        member("n1", free_address()),
        next,
    ];
    let start = |number| start_node(number, &members, &source, &Shape::default());
    let machines = [start(0), start(1)];
    for machine in &machines {
        until_connected(machine, 1);
        let suspects = || machine.node.members().iter().any(|member| member.suspected);
        while !suspects() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    read_files(&machines[0], 40);
    read_files(&machines[1], 40);
    let from_peers = machines[1].volume.counters().counts().peer_blocks;
    assert!(from_peers > 0, "they do not share");
}
