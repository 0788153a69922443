//! The network: a TUN device for each node and one for the source, and a switch between them that
//! delays each packet by the hops from one to the other.
//!
//! The devices are `mesh0` and so on; who starts the program moves them into namespaces. A packet
//! for 10.x.y.Z goes to device Z-1. The source is the last one, and equally far from all. Hops are
//! those of the core's topology, which the simulator uses too. Links have no bandwidth and lose
//! nothing; a packet is late by what this program is late, which it counts.
//!
//! Round trips, medians of refused connections on two processors that others used as well
//! (2026-11-26, 25 nodes, 200 us a hop): 0.56, 0.97, 1.78 and 3.40 ms at 1, 2, 4 and 8 hops, and
//! 0.59, 0.98, 1.79 and 3.41 ms while 12 pairs of nodes exchanged 16 KiB 3,900 times a second. That
//! took 0.29 of a processor.
//!
//! The kernel delivers a packet in the call that writes it, TCP's work included. So this program's
//! processor time is more than the switch's.
//!
//! The command `counts` prints what was sent since the start.

use std::collections::BinaryHeap;
use std::io::{self, BufRead, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use hither_core::Topology;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::values::now_ns;

/// So large that the packets of a block are few.
const MTU: u16 = 65_500;
/// Packets that wait in a device.
const QUEUE_PACKETS: u32 = 10_000;
/// The least header of IPv4.
const HEADER_BYTES: usize = 20;
/// A packet that is later than this is counted.
const LATE_NS: u64 = 200_000;

/// What was sent, from whom to whom.
struct Counts {
    ports: usize,
    bytes: Box<[AtomicU64]>,
    packets: Box<[AtomicU64]>,
    dropped: AtomicU64,
    late: AtomicU64,
    late_ns_max: AtomicU64,
}

impl Counts {
    fn new(ports: usize) -> Counts {
        let zeros = || (0..ports * ports).map(|_| AtomicU64::new(0)).collect();
        Counts {
            ports,
            bytes: zeros(),
            packets: zeros(),
            dropped: AtomicU64::new(0),
            late: AtomicU64::new(0),
            late_ns_max: AtomicU64::new(0),
        }
    }

    fn print(&self) {
        let matrix = |of: &[AtomicU64]| {
            let values: Vec<u64> = of.iter().map(|it| it.load(Ordering::Relaxed)).collect();
            let rows: Vec<&[u64]> = values.chunks_exact(self.ports).collect();
            format!("{rows:?}")
        };
        let (bytes, packets) = (matrix(&self.bytes), matrix(&self.packets));
        let [dropped, late] = [&self.dropped, &self.late].map(|it| it.load(Ordering::Relaxed));
        // The largest since the last time.
        let late_us_max = self.late_ns_max.swap(0, Ordering::Relaxed) / 1000;
        println!(
            "{{\"bytes\": {bytes}, \"packets\": {packets}, \"dropped\": {dropped}, \
             \"late\": {late}, \"late_us_max\": {late_us_max}}}"
        );
    }
}

/// A packet on its way. The earliest is the greatest.
#[derive(PartialEq, Eq)]
struct Packet {
    due_ns: u64,
    number: u64,
    to: usize,
    bytes: usize,
    data: Vec<u8>,
}

impl Ord for Packet {
    fn cmp(&self, other: &Packet) -> std::cmp::Ordering {
        (other.due_ns, other.number).cmp(&(self.due_ns, self.number))
    }
}

impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Packet) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct Fabric {
    devices: Vec<SyncDevice>,
    /// From row to column.
    delay_ns: Vec<Vec<u64>>,
    on_the_way: BinaryHeap<Packet>,
    /// Buffers that nobody uses.
    free: Vec<Vec<u8>>,
    number: u64,
    counts: Arc<Counts>,
}

/// Runs the network until stdin ends.
pub(crate) fn run(topology: &str, hop_us: u64, source_hops: u32) -> Result<()> {
    let topology: Topology = topology.parse()?;
    let nodes = topology.nodes();
    ensure!(nodes < 250, "a network has at most 249 nodes");
    let mut hops: Vec<Vec<u32>> = topology
        .all()
        .map(|from| topology.all().map(|to| topology.hops(from, to)).collect())
        .collect();
    hops.iter_mut().for_each(|row| row.push(source_hops));
    let mut of_source = vec![source_hops; nodes];
    of_source.push(0);
    hops.push(of_source);
    let device = |number| {
        DeviceBuilder::new()
            .name(format!("mesh{number}"))
            .layer(Layer::L3)
            .mtu(MTU)
            .tx_queue_len(QUEUE_PACKETS)
            .enable(false)
            .build_sync()
            .with_context(|| format!("the TUN device mesh{number}"))
    };
    let devices: Vec<SyncDevice> = (0..=nodes).map(device).collect::<Result<_>>()?;
    let counts = Arc::new(Counts::new(devices.len()));
    let fabric = Fabric {
        delay_ns: hops
            .iter()
            .map(|row| row.iter().map(|&it| u64::from(it) * hop_us * 1000))
            .map(Iterator::collect)
            .collect(),
        devices,
        on_the_way: BinaryHeap::new(),
        free: Vec::new(),
        number: 0,
        counts: Arc::clone(&counts),
    };
    let answering = thread::spawn(move || {
        println!("{{\"hops\": {hops:?}, \"mtu\": {MTU}}}");
        for line in io::stdin().lock().lines() {
            match line.as_deref() {
                Ok("counts") => counts.print(),
                _ => break,
            }
        }
        std::process::exit(0);
    });
    fabric.switch()?;
    answering.join().expect("it does not panic");
    Ok(())
}

impl Fabric {
    fn switch(mut self) -> Result<()> {
        let mut poll = Poll::new()?;
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let watch = |descriptor: &dyn AsRawFd, token| {
            let descriptor = descriptor.as_raw_fd();
            let source = &mut SourceFd(&descriptor);
            poll.registry()
                .register(source, Token(token), Interest::READABLE)
        };
        for (port, device) in self.devices.iter().enumerate() {
            device.set_nonblocking(true)?;
            watch(device, port)?;
        }
        watch(&timer, self.devices.len())?;
        let mut events = Events::with_capacity(self.devices.len() + 1);
        loop {
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                // Setting the timer anew clears what it has to say.
                if event.token().0 < self.devices.len() {
                    self.receive(event.token().0)?;
                }
                self.deliver();
            }
            if let Some(first) = self.on_the_way.peek() {
                let at = Itimerspec {
                    it_interval: Timespec::default(),
                    it_value: Timespec {
                        tv_sec: (first.due_ns / 1_000_000_000) as i64,
                        tv_nsec: (first.due_ns % 1_000_000_000) as i64,
                    },
                };
                rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at)?;
            }
        }
    }

    /// Takes all packets that a device has.
    fn receive(&mut self, from: usize) -> Result<()> {
        loop {
            let new = || vec![0; usize::from(MTU)];
            let mut data = self.free.pop().unwrap_or_else(new);
            let bytes = match self.devices[from].recv(&mut data) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.free.push(data);
                    return Ok(());
                }
                Err(error) => return Err(error).context(format!("reading from mesh{from}")),
            };
            match receiver(&data[..bytes], self.devices.len()) {
                Some(to) => self.forward(from, to, bytes, data),
                // The kernel sends some of its own by IPv6 and multicast.
                None => self.free.push(data),
            }
        }
    }

    fn forward(&mut self, from: usize, to: usize, bytes: usize, data: Vec<u8>) {
        let at = from * self.devices.len() + to;
        self.counts.bytes[at].fetch_add(bytes as u64, Ordering::Relaxed);
        self.counts.packets[at].fetch_add(1, Ordering::Relaxed);
        self.number += 1;
        self.on_the_way.push(Packet {
            due_ns: now_ns() + self.delay_ns[from][to],
            number: self.number,
            to,
            bytes,
            data,
        });
    }

    /// Hands over all packets that are due.
    fn deliver(&mut self) {
        let is_due = |packet: &&Packet| packet.due_ns <= now_ns();
        while self.on_the_way.peek().as_ref().is_some_and(is_due) {
            let Some(packet) = self.on_the_way.pop() else {
                return;
            };
            let late_ns = now_ns().saturating_sub(packet.due_ns);
            let counts = &self.counts;
            counts.late_ns_max.fetch_max(late_ns, Ordering::Relaxed);
            let late = u64::from(late_ns > LATE_NS);
            counts.late.fetch_add(late, Ordering::Relaxed);
            // A device that is down takes nothing: its namespace is not ready yet, or not any more.
            let sent = self.devices[packet.to].send(&packet.data[..packet.bytes]);
            let dropped = u64::from(sent.is_err());
            counts.dropped.fetch_add(dropped, Ordering::Relaxed);
            self.free.push(packet.data);
        }
    }
}

/// The device that a packet is for.
fn receiver(packet: &[u8], ports: usize) -> Option<usize> {
    let is_ipv4 = packet.len() >= HEADER_BYTES && packet[0] >> 4 == 4;
    // The fourth byte of the destination, at 16 to 19.
    let port = usize::from(*packet.get(19)?).checked_sub(1)?;
    (is_ipv4 && port < ports).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::receiver;

    #[test]
    fn only_packets_of_ipv4_to_a_device_have_a_receiver() {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 97, 0, 3]);
        assert_eq!(receiver(&packet, 3), Some(2));
        assert_eq!(receiver(&packet, 2), None);
        assert_eq!(receiver(&packet[..19], 3), None);
        packet[19] = 0;
        assert_eq!(receiver(&packet, 3), None);
        packet[0] = 0x60;
        packet[19] = 3;
        assert_eq!(receiver(&packet, 3), None);
        assert_eq!(receiver(&[], 3), None);
    }
}
