//! Placements (where data start) and policies (what moves them afterwards), each as the commands
//! that a guest runs.

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::machine::Machine;

/// A placement: where a program's data start, set by the program's own options or by numactl.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Placement {
    /// Arguments appended to the case's own.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Arguments put before the case's own: where these are a command, one that starts it.
    #[serde(default)]
    pub(crate) before: Vec<String>,
    /// numactl's arguments. Empty: the program runs without numactl.
    #[serde(default)]
    pub(crate) numactl: Vec<String>,
    /// The computed share of local accesses, for programs whose threads touch only their own part.
    #[serde(default)]
    pub(crate) local: Option<Local>,
}

/// A computed share of local accesses.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Local {
    /// Everything is local.
    All,
    /// Nothing is local.
    Nothing,
    /// Pages lie on all nodes in turn.
    OneOfNodes,
    /// Everything lies on node 0, and one thread runs on each CPU.
    CpusOfNodeZero,
}

impl Local {
    /// The share on `machine`.
    pub(crate) fn share(self, machine: &Machine) -> f64 {
        match self {
            Local::All => 1.0,
            Local::Nothing => 0.0,
            Local::OneOfNodes => 1.0 / machine.nodes.len() as f64,
            Local::CpusOfNodeZero => f64::from(machine.nodes[0].cpus) / f64::from(machine.cpus()),
        }
    }
}

/// The built-in placements: name, the program's arguments, numactl's arguments, local share.
const PLACEMENTS: &[(&str, &[&str], &[&str], Local)] = &[
    ("good", &["--init", "parallel"], &[], Local::All),
    (
        "interleaved",
        &[],
        &["--cpunodebind=0", "--interleave=all"],
        Local::OneOfNodes,
    ),
    (
        "local",
        &[],
        &["--cpunodebind=0", "--membind=0"],
        Local::All,
    ),
    (
        "remote",
        &[],
        &["--cpunodebind=0", "--membind=1"],
        Local::Nothing,
    ),
    (
        "round-robin",
        &["--init", "interleave"],
        &[],
        Local::OneOfNodes,
    ),
    ("single", &["--init", "single"], &[], Local::CpusOfNodeZero),
];

impl Placement {
    /// The built-in placement of that name.
    pub(crate) fn named(name: &str) -> Option<Placement> {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let &(_, args, numactl, local) = PLACEMENTS.iter().find(|placement| placement.0 == name)?;
        Some(Placement {
            args: owned(args),
            before: Vec::new(),
            numactl: owned(numactl),
            local: Some(local),
        })
    }

    /// The built-in names.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        PLACEMENTS.iter().map(|placement| placement.0)
    }
}

/// What moves pages while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The kernel's first touch. NUMA balancing is off, so nothing moves later.
    Kernel,
    /// The kernel's NUMA balancing.
    NumaBalancing,
    /// The program moves its own pages after the first iteration (`--migrate hand`).
    Hand,
    /// The kernel's memory tiering: NUMA balancing in its second mode (promotion by access) with
    /// demotion.
    Tiering,
    /// `hither run`, with the agent in the guest.
    Hither {
        /// The option of `hither run`.
        mechanism: &'static HitherOption,
        /// The argument of the option.
        argument: String,
    },
}

/// An option of `hither run`, and the state in which it starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HitherOption {
    /// The policy's name before the colon.
    name: &'static str,
    /// The option, without its argument.
    pub(crate) option: &'static str,
    /// Further options.
    pub(crate) more: &'static [&'static str],
    /// The state in which it starts.
    pub(crate) given: InitialState,
    /// Its budget for counting is the default times what balancing is scaled by.
    pub(crate) scaled: bool,
}

/// The state in which `hither run` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// NUMA balancing is off.
    Nothing,
    /// NUMA balancing is on with scaled periods, so the kernel produces hint faults.
    Hints,
    /// A profile of the program's allocation sites (`--profile`), from an earlier unmarked run.
    Sites,
}

/// Two mechanisms in one run: the page cache as well. The files of the program, which wrote them
/// itself, may have 8 MiB of it, the least that is allowed.
const PAGE_CACHE_OPTIONS: &[&str] = &["--page-cache", "--cache", "8MiB", "--all-files"];

/// Policies whose name has the option's argument: `hither:cache-aware`.
const HITHER_OPTIONS: &[HitherOption] = &[
    HitherOption {
        name: "hither",
        option: "--memory",
        more: &[],
        given: InitialState::Nothing,
        scaled: false,
    },
    HitherOption {
        name: "hither-hints",
        option: "--memory",
        more: &[],
        given: InitialState::Hints,
        scaled: false,
    },
    HitherOption {
        name: "hither-known",
        option: "--memory",
        more: &[],
        given: InitialState::Sites,
        scaled: false,
    },
    HitherOption {
        name: "hither-page-cache",
        option: "--memory",
        more: PAGE_CACHE_OPTIONS,
        given: InitialState::Nothing,
        scaled: false,
    },
    HitherOption {
        name: "hither-placed",
        option: "--file-placement",
        more: &[],
        given: InitialState::Nothing,
        scaled: false,
    },
    HitherOption {
        name: "hither-replicas",
        option: "--replicas",
        more: &[],
        given: InitialState::Nothing,
        scaled: false,
    },
    HitherOption {
        name: "hither-scaled",
        option: "--memory",
        more: &[],
        given: InitialState::Nothing,
        scaled: true,
    },
];

const POLICIES: &[(&str, Policy)] = &[
    ("hand", Policy::Hand),
    ("kernel", Policy::Kernel),
    ("numa-balancing", Policy::NumaBalancing),
    ("tiering", Policy::Tiering),
];

impl Policy {
    /// The policy of that name.
    pub(crate) fn named(name: &str) -> Result<Policy> {
        if let Some((_, policy)) = POLICIES.iter().find(|policy| policy.0 == name) {
            return Ok(policy.clone());
        }
        let hither = name.split_once(':').and_then(|(name, argument)| {
            let mechanism = HITHER_OPTIONS
                .iter()
                .find(|mechanism| mechanism.name == name)?;
            Some((mechanism, argument.to_owned())).filter(|(_, argument)| !argument.is_empty())
        });
        if let Some((mechanism, argument)) = hither {
            return Ok(Policy::Hither {
                mechanism,
                argument,
            });
        }
        let names: Vec<&str> = POLICIES.iter().map(|policy| policy.0).collect();
        let hither = HITHER_OPTIONS.iter();
        let hither = hither
            .map(|mechanism| format!("{}:X (`hither run {}=X`)", mechanism.name, mechanism.option));
        let hither: Vec<String> = hither.collect();
        bail!(
            "no policy `{name}`; there are {}, and {}",
            names.join(", "),
            hither.join(", ")
        )
    }

    /// The name in scenarios and results.
    pub(crate) fn name(&self) -> String {
        if let Policy::Hither {
            mechanism,
            argument,
        } = self
        {
            return format!("{}:{argument}", mechanism.name);
        }
        let policy = POLICIES.iter().find(|policy| policy.1 == *self);
        policy.map_or("", |policy| policy.0).to_owned()
    }

    /// The mode of NUMA balancing; 0 is off.
    fn balancing(&self) -> u32 {
        match self {
            Policy::Kernel | Policy::Hand => 0,
            Policy::Hither { mechanism, .. } => u32::from(mechanism.given == InitialState::Hints),
            Policy::NumaBalancing => 1,
            Policy::Tiering => 2,
        }
    }

    /// Whether the kernel's balancing is on, whose periods are scaled, or hither's budget is.
    pub(crate) fn is_scaled(&self) -> bool {
        let hither = matches!(self, Policy::Hither { mechanism, .. } if mechanism.scaled);
        hither || self.balancing() > 0
    }

    /// Arguments that it appends to the program's.
    pub(crate) fn args(&self) -> &'static [&'static str] {
        match self {
            Policy::Hand => &["--migrate", "hand"],
            _ => &[],
        }
    }

    /// The shell commands that set it up in the guest. Programs here run for milliseconds of guest
    /// time, while the kernel's scanner works in seconds. So its delays, its periods and the bytes
    /// per scan are divided by `scale`. This preserves the bytes scanned per second, and the share
    /// of a footprint that a scan covers if the footprint is smaller by the same factor. The
    /// program switches the scanner on when its region opens (`lab_balance` in lab/programs/lab.h),
    /// unless `hither run` must find it on.
    pub(crate) fn setup(&self, scale: u32) -> String {
        let switch = "/proc/sys/kernel/numa_balancing";
        let mode = self.balancing();
        let on = match self {
            _ if mode == 0 => return format!("echo 0 > {switch}\n"),
            Policy::Hither { .. } => format!("echo {mode} > {switch}\n"),
            _ => format!("export LAB_BALANCING={mode}\n"),
        };
        let demote = if *self == Policy::Tiering {
            "echo 1 > /sys/kernel/mm/numa/demotion_enabled\n"
        } else {
            ""
        };
        format!(
            "[ -d /sys/kernel/debug/sched ] || mount -t debugfs none /sys/kernel/debug\n\
             for knob in scan_delay_ms scan_period_min_ms scan_period_max_ms scan_size_mb \
             hot_threshold_ms; do\n\
             file=/sys/kernel/debug/sched/numa_balancing/$knob\n\
             echo $(( ($(cat $file) + {scale} - 1) / {scale} )) > $file\n\
             done\n\
             {demote}{on}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Node;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(PLACEMENTS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(POLICIES.is_sorted_by(|a, b| a.0 < b.0));
        for (name, policy) in POLICIES {
            assert_eq!(Policy::named(name).expect("a name of the list"), *policy);
            assert_eq!(policy.name(), *name);
        }
        assert!(HITHER_OPTIONS.is_sorted_by(|a, b| a.name < b.name));
        for mechanism in HITHER_OPTIONS {
            let name = format!("{}:cache-aware{{limit=0.3}},upm", mechanism.name);
            let policy = Policy::named(&name).expect("it has an argument");
            let argument = "cache-aware{limit=0.3},upm".to_owned();
            assert_eq!(
                policy,
                Policy::Hither {
                    mechanism,
                    argument
                }
            );
            assert_eq!(policy.name(), name);
            assert!(Policy::named("hither:").is_err() && Policy::named("hither").is_err());
        }
        assert!(Placement::names().all(|name| Placement::named(name).is_some()));
        assert!(
            Policy::named("magic")
                .expect_err("no such policy")
                .to_string()
                .contains("hand, kernel")
        );
    }

    #[test]
    fn shares_by_arithmetic() {
        let node = |cpus| Node {
            cpus,
            memory_mib: 128,
        };
        let machine = Machine {
            nodes: vec![node(1), node(3)],
            distances: Vec::new(),
            hmat: false,
            icount: false,
        };
        let shares: Vec<f64> = ["good", "remote", "round-robin", "single"]
            .map(|name| {
                Placement::named(name)
                    .and_then(|placement| placement.local)
                    .map_or(9.0, |local| local.share(&machine))
            })
            .to_vec();
        assert_eq!(shares, [1.0, 0.0, 0.5, 0.25]);
    }

    #[test]
    fn the_scanner_is_scaled() {
        let setup = Policy::NumaBalancing.setup(100);
        assert!(setup.contains("+ 100 - 1) / 100"));
        assert!(setup.ends_with("export LAB_BALANCING=1\n"));
        assert!(!setup.contains("demotion"));
        assert!(Policy::Tiering.setup(10).contains("demotion_enabled"));
        assert!(Policy::Kernel.setup(100).starts_with("echo 0"));
        let hither = |name: &str| Policy::named(name).expect("a policy").setup(100);
        assert!(hither("hither:upm").starts_with("echo 0"));
        let hints = hither("hither-hints:upm");
        assert!(hints.contains("+ 100 - 1) / 100"));
        assert!(hints.ends_with("\necho 1 > /proc/sys/kernel/numa_balancing\n"));
    }
}
