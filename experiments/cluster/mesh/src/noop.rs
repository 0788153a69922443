//! The no-op: how long the network takes for a packet and its answer. A connection to a port that
//! nobody has is refused by the kernel of the other node; so no other process takes part.
//!
//! The addresses have turns. The command `times` prints the microseconds of each since the last
//! time, by address.

use std::io::{self, BufRead, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::values::number;

/// Beyond, the network is broken.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks in turn until stdin ends.
pub(crate) fn run(interval_ms: u64, addresses: &[&str]) -> Result<()> {
    let addresses: Vec<SocketAddr> = addresses
        .iter()
        .copied()
        .map(number)
        .collect::<Result<_>>()?;
    let times = Arc::new(Mutex::new(vec![Vec::new(); addresses.len()]));
    let asked = Arc::clone(&times);
    thread::spawn(move || {
        println!("{{}}");
        for line in io::stdin().lock().lines() {
            let mut times = asked.lock().unwrap_or_else(PoisonError::into_inner);
            match line.as_deref() {
                Ok("times") => println!("{times:?}"),
                _ => break,
            }
            times.iter_mut().for_each(Vec::clear);
        }
        std::process::exit(0);
    });
    let mut turn = 0;
    loop {
        let address = addresses.get(turn).context("no address")?;
        let begun = Instant::now();
        match TcpStream::connect_timeout(address, TIMEOUT) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error).context(address.to_string()),
            Ok(_) => bail!("{address} has a listener"),
        }
        let took_us = begun.elapsed().as_nanos() / 1000;
        times.lock().unwrap_or_else(PoisonError::into_inner)[turn].push(took_us as u64);
        turn = (turn + 1) % addresses.len();
        thread::sleep(Duration::from_millis(interval_ms));
    }
}
