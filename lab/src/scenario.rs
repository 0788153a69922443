//! Scenarios: a TOML file of machines and cases, each case a matrix of machines, placements and
//! policies.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::expect::Expect;
use crate::machine::Machine;
use crate::policy::{Placement, Policy};
use crate::price::{Constants, SETS};
use crate::programs::{self, Compiler};

/// A file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// One line on what it shows.
    title: String,
    /// The latencies of cases that name none.
    #[serde(default = "xeon2")]
    constants: String,
    /// Runs of each case that says nothing else.
    #[serde(default = "three")]
    repetitions: u32,
    /// What NUMA balancing's periods are divided by.
    #[serde(default = "hundred")]
    balancing_scale: u32,
    #[serde(default)]
    caches: Caches,
    machines: BTreeMap<String, Machine>,
    #[serde(default)]
    placements: BTreeMap<String, Placement>,
    #[serde(rename = "case")]
    cases: Vec<Spanned<Template>>,
}

/// The modelled caches: bytes x ways, `0x0` for a level that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Caches {
    /// Bytes of a line.
    pub(crate) line: u32,
    /// The L1 of each CPU.
    pub(crate) l1: String,
    /// The L2 of each CPU.
    pub(crate) l2: String,
    /// The last level, shared by the node's CPUs.
    pub(crate) llc: String,
}

impl Default for Caches {
    /// A present core's L1 and L2, and an LLC small enough that arrays of some MiB stand for ones
    /// of some GiB.
    fn default() -> Self {
        Caches {
            line: 64,
            l1: "32768x8".into(),
            l2: "262144x8".into(),
            llc: "1048576x16".into(),
        }
    }
}

impl Caches {
    /// The plugin's options.
    pub(crate) fn options(&self) -> Vec<String> {
        let Caches { line, l1, l2, llc } = self;
        vec![
            format!("line={line}"),
            format!("l1={l1}"),
            format!("l2={l2}"),
            format!("llc={llc}"),
        ]
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.line.is_power_of_two() && (16..=256).contains(&self.line),
            "caches.line: {} is no power of two from 16 to 256",
            self.line
        );
        for (name, size) in [("l1", &self.l1), ("l2", &self.l2), ("llc", &self.llc)] {
            let numbers = size
                .split_once('x')
                .map(|(bytes, ways)| (bytes.parse::<u64>(), ways.parse::<u32>()));
            ensure!(
                matches!(numbers, Some((Ok(_), Ok(_)))),
                "caches.{name}: `{size}` is not BYTESxWAYS, such as 32768x8"
            );
        }
        Ok(())
    }
}

/// A case before its matrix is expanded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    name: String,
    /// A program of lab/programs by name; `roi` brackets any other.
    program: String,
    /// Dynamic programs of the host, by path, that lie in the guest's working folder with their
    /// libraries.
    #[serde(default)]
    host_programs: Vec<String>,
    /// Debian packages. Their files, and those of all that they depend on, are the root in which
    /// `roi` runs its program.
    #[serde(default)]
    packages: Vec<String>,
    /// Commands of the shell that make what the program reads, in that root, before anything is
    /// counted.
    #[serde(default)]
    prepare: String,
    /// The program linked with shared libraries, as `hither run` needs it; all policies of the case
    /// run the same program.
    #[serde(default)]
    dynamic: bool,
    /// What compiles it.
    #[serde(default)]
    compiler: Compiler,
    /// So many of the program run at once, each with its own `{copy}` in its arguments; the first
    /// is what is counted.
    #[serde(default = "one")]
    copies: u32,
    /// What is left of node 0's memory before the program starts.
    near_free_mib: Option<u32>,
    /// The size of an empty ext4 on a disk, mounted at /disk.
    disk_mib: Option<u32>,
    #[serde(default)]
    args: Vec<String>,
    machines: Vec<String>,
    placements: Vec<String>,
    #[serde(default = "kernel")]
    policies: Vec<String>,
    constants: Option<String>,
    repetitions: Option<u32>,
    /// Seconds of the host's time that one run may take.
    #[serde(default = "timeout")]
    timeout_s: u64,
    /// Each thread touches its own part of the data alone, so that the placement gives the local
    /// share by arithmetic.
    #[serde(default)]
    partitioned: bool,
    #[serde(default)]
    expect: Expect,
}

fn xeon2() -> String {
    "xeon2".to_owned()
}
fn one() -> u32 {
    1
}
fn three() -> u32 {
    3
}
fn hundred() -> u32 {
    100
}
fn timeout() -> u64 {
    600
}
fn kernel() -> Vec<String> {
    vec!["kernel".to_owned()]
}

/// One case to run: a program on a machine, under a placement and a policy.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The name in the file.
    pub(crate) name: String,
    /// The machine's name in the file.
    pub(crate) machine_name: String,
    /// The machine itself.
    pub(crate) machine: Machine,
    /// The placement's name.
    pub(crate) placement_name: String,
    /// The placement.
    pub(crate) placement: Placement,
    /// The policy.
    pub(crate) policy: Policy,
    /// The divisor of the policy's periods, if it has any.
    pub(crate) balancing_scale: u32,
    /// The program.
    pub(crate) program: String,
    /// Programs of the host that the guest needs.
    pub(crate) host_programs: Vec<String>,
    /// Debian packages in whose root the program runs. None: in the guest's own.
    pub(crate) packages: Vec<String>,
    /// Commands that run there before it.
    pub(crate) prepare: String,
    /// Whether the program is linked with shared libraries.
    pub(crate) dynamic: bool,
    /// The compiler of the program.
    pub(crate) compiler: Compiler,
    /// The number of copies that run at the same time.
    pub(crate) copies: u32,
    /// Free memory of node 0 before the program starts, if it is limited.
    pub(crate) near_free_mib: Option<u32>,
    /// The size of its file system on a disk, if it has one.
    pub(crate) disk_mib: Option<u32>,
    /// Its arguments, without those of the placement and the policy. `{threads}`, `{nodes}`,
    /// `{repetition}` and `{copy}` stand for numbers.
    pub(crate) args: Vec<String>,
    /// The latencies.
    pub(crate) constants: &'static Constants,
    /// The modelled caches.
    pub(crate) caches: Caches,
    /// The number of runs.
    pub(crate) repetitions: u32,
    /// Time limit of one run in seconds.
    pub(crate) timeout_s: u64,
    /// The local share, if arithmetic gives one.
    pub(crate) local_share: Option<f64>,
    /// The expectations.
    pub(crate) expect: Expect,
}

impl Case {
    /// The case's full name: `NAME/MACHINE/PLACEMENT/POLICY`.
    pub(crate) fn id(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            self.name,
            self.machine_name,
            self.placement_name,
            self.policy.name()
        )
    }

    /// The arguments of copy number `copy` of the program in run number `repetition`.
    pub(crate) fn arguments(&self, repetition: u32, copy: u32) -> Vec<String> {
        let fill = |arg: &str| {
            arg.replace("{threads}", &self.machine.cpus().to_string())
                .replace("{nodes}", &self.machine.nodes.len().to_string())
                .replace("{repetition}", &repetition.to_string())
                .replace("{copy}", &copy.to_string())
        };
        let placement = &self.placement;
        let own = placement.before.iter().chain(&self.args);
        let own = own.chain(&placement.args).map(String::as_str);
        own.chain(self.policy.args().iter().copied())
            .map(fill)
            .collect()
    }
}

/// A scenario with its matrix expanded.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// One line on what it shows.
    pub(crate) title: String,
    /// The cases in the file's order: machines, then placements, then policies.
    pub(crate) cases: Vec<Case>,
}

/// Reads and expands the scenario at `path`.
pub(crate) fn read(path: &Path) -> Result<Scenario> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the scenario {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Scenario> {
    // Errors name the line, the column and the known fields.
    let file: File =
        toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim_end()))?;
    file.caches.check()?;
    ensure!(file.repetitions > 0, "repetitions: 0 runs give no result");
    ensure!(
        file.balancing_scale > 0,
        "balancing_scale: must be 1 or more"
    );
    ensure!(!file.cases.is_empty(), "case: none given");
    for (name, machine) in &file.machines {
        machine
            .check()
            .with_context(|| format!("machines.{name}"))?;
    }
    for name in file.placements.keys() {
        ensure!(
            Placement::named(name).is_none(),
            "placements.{name}: is built in; choose another name"
        );
    }
    let mut cases = Vec::new();
    for template in &file.cases {
        let line = 1 + text[..template.span().start].matches('\n').count();
        let template = template.get_ref();
        expand(&file, template, &mut cases)
            .with_context(|| format!("line {line}: case `{}`", template.name))?;
    }
    for (index, case) in cases.iter().enumerate() {
        ensure!(
            cases[..index].iter().all(|other| other.id() != case.id()),
            "case `{}` is there twice",
            case.id()
        );
    }
    Ok(Scenario {
        title: file.title,
        cases,
    })
}

fn expand(file: &File, template: &Template, cases: &mut Vec<Case>) -> Result<()> {
    let set = template.constants.as_ref().unwrap_or(&file.constants);
    let Some(constants) = Constants::named(set) else {
        let names: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        bail!("constants: no set `{set}`; there are {}", names.join(", "));
    };
    let repetitions = template.repetitions.unwrap_or(file.repetitions);
    ensure!(repetitions > 0, "repetitions: 0 runs give no result");
    for (field, list) in [
        ("machines", &template.machines),
        ("placements", &template.placements),
        ("policies", &template.policies),
    ] {
        ensure!(!list.is_empty(), "{field}: none given");
    }
    ensure!(
        programs::names().any(|name| name == template.program),
        "program: no `{}` in lab/programs, which has {}; `roi` brackets any other",
        template.program,
        programs::names().collect::<Vec<_>>().join(", ")
    );
    ensure!(
        template.timeout_s > 0,
        "timeout_s: 0 s are enough for nothing"
    );
    ensure!(
        template
            .disk_mib
            .is_none_or(|mib| (16..=4096).contains(&mib)),
        "disk_mib: from 16 to 4096"
    );
    ensure!(
        template.packages.is_empty() || template.program == "roi",
        "packages: their programs run by `program = \"roi\"`, with their command in `args`"
    );
    ensure!(
        !template.packages.is_empty() || template.prepare.is_empty(),
        "prepare: runs in the root of `packages`, and there are none"
    );
    ensure!(template.copies > 0, "copies: 0 programs do nothing");
    ensure!(
        template.dynamic || template.compiler == Compiler::Cc,
        "compiler: only cc links programs without shared libraries: say `dynamic = true`"
    );
    template.expect.check().context("expect")?;
    ensure!(
        template.expect.spread.is_none() || repetitions > 1,
        "expect.spread: one run has none (repetitions)"
    );
    for machine_name in &template.machines {
        let machine = file.machines.get(machine_name).with_context(|| {
            let names: Vec<&str> = file.machines.keys().map(String::as_str).collect();
            let names = names.join(", ");
            format!("machines: no machine `{machine_name}` in the file, which has {names}")
        })?;
        for placement_name in &template.placements {
            let given = file
                .placements
                .get(placement_name)
                .cloned()
                .or_else(|| Placement::named(placement_name));
            let placement = given.with_context(|| {
                let names: Vec<&str> = Placement::names().collect();
                format!(
                    "placements: no placement `{placement_name}` in the file, nor among {}",
                    names.join(", ")
                )
            })?;
            for policy_name in &template.policies {
                let policy = Policy::named(policy_name).context("policies")?;
                ensure!(
                    template.dynamic || !matches!(policy, Policy::Hither { .. }),
                    "policies: {policy_name} sees programs with shared libraries alone: say \
                     `dynamic = true`"
                );
                let local = placement
                    .local
                    .filter(|_| template.partitioned && policy == Policy::Kernel);
                cases.push(Case {
                    name: template.name.clone(),
                    machine_name: machine_name.clone(),
                    machine: machine.clone(),
                    placement_name: placement_name.clone(),
                    placement: placement.clone(),
                    policy,
                    balancing_scale: file.balancing_scale,
                    program: template.program.clone(),
                    host_programs: template.host_programs.clone(),
                    packages: template.packages.clone(),
                    prepare: template.prepare.clone(),
                    dynamic: template.dynamic,
                    compiler: template.compiler,
                    copies: template.copies,
                    near_free_mib: template.near_free_mib,
                    disk_mib: template.disk_mib,
                    args: template.args.clone(),
                    constants,
                    caches: file.caches.clone(),
                    repetitions,
                    timeout_s: template.timeout_s,
                    local_share: local.map(|local| local.share(machine)),
                    expect: template.expect.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Whether `name` matches `pattern`, in which `*` stands for any text and `?` for one character. A
/// pattern without `/` is compared with the case's own name.
pub(crate) fn selected(pattern: &str, case: &Case) -> bool {
    let id = case.id();
    let name = if pattern.contains('/') {
        &id
    } else {
        &case.name
    };
    matches(pattern.as_bytes(), name.as_bytes())
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        (Some((b'?', rest)), Some((_, name))) => matches(rest, name),
        (Some((a, rest)), Some((b, name))) => a == b && matches(rest, name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        title = "a test"
        repetitions = 2
        [machines.two]
        nodes = [{ cpus = 1, memory_mib = 256 }, { cpus = 1, memory_mib = 128 }]
        [machines.three]
        nodes = [
            { cpus = 2, memory_mib = 256 },
            { cpus = 1, memory_mib = 128 },
            { cpus = 0, memory_mib = 64 },
        ]
        [placements.far]
        args = ["--place", "stream=2"]
        [[case]]
        name = "stream"
        program = "stream"
        args = ["--threads", "{threads}", "--seed", "{repetition}{copy}"]
        machines = ["two", "three"]
        placements = ["single", "far"]
        policies = ["kernel", "hand"]
        partitioned = true
    "#;

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).expect_err("it is wrong"))
    }

    #[test]
    fn a_matrix_is_expanded_in_order() {
        let scenario = parse(SMALL).expect("it is right");
        let ids: Vec<String> = scenario.cases.iter().map(Case::id).collect();
        assert_eq!(
            ids,
            [
                "stream/two/single/kernel",
                "stream/two/single/hand",
                "stream/two/far/kernel",
                "stream/two/far/hand",
                "stream/three/single/kernel",
                "stream/three/single/hand",
                "stream/three/far/kernel",
                "stream/three/far/hand",
            ]
        );
        let shares: Vec<Option<f64>> = scenario.cases.iter().map(|case| case.local_share).collect();
        assert_eq!(
            shares,
            [
                Some(0.5),
                None,
                None,
                None,
                Some(2.0 / 3.0),
                None,
                None,
                None
            ]
        );
        assert_eq!(
            scenario.cases[5].arguments(1, 0),
            [
                "--threads",
                "3",
                "--seed",
                "10",
                "--init",
                "single",
                "--migrate",
                "hand"
            ]
        );
        assert!(scenario.cases.iter().all(|case| case.repetitions == 2));
    }

    #[test]
    fn errors_name_the_field() {
        let tweak = |from: &str, to: &str| {
            assert!(SMALL.contains(from), "{from}");
            error(&SMALL.replace(from, to))
        };
        assert!(tweak("partitioned", "partition").contains("unknown field `partition`"));
        assert!(tweak("[\"two\", \"three\"]", "[\"four\"]").contains(
            "line 14: case `stream`: machines: no machine `four` in the file, which has three, two"
        ));
        assert!(
            tweak("program = \"stream\"", "program = \"steam\"").contains(
                "case `stream`: program: no `steam` in lab/programs, which has bt, cg, chase, nas"
            )
        );
        assert!(tweak("[\"single\", \"far\"]", "[\"near\"]").contains("no placement `near`"));
        assert!(
            tweak("[\"kernel\", \"hand\"]", "[\"magic\"]").contains("policies: no policy `magic`")
        );
        assert!(
            tweak("\"hand\"", "\"hither:upm\"")
                .contains("policies: hither:upm sees programs with shared libraries alone")
        );
        assert!(tweak("[\"kernel\", \"hand\"]", "[]").contains("policies: none given"));
        assert!(
            tweak("[placements.far]", "[placements.good]").contains("placements.good: is built in")
        );
        assert!(
            tweak(
                "title = \"a test\"",
                "title = \"a test\"\nconstants = \"vax\""
            )
            .contains("no set `vax`; there are cxl")
        );
        assert!(
            tweak(
                "title = \"a test\"",
                "title = \"a test\"\ncaches = { l1 = \"32k\" }"
            )
            .contains("caches.l1: `32k` is not BYTESxWAYS")
        );
        assert!(tweak("repetitions = 2", "repetitions = 0").contains("repetitions: 0 runs"));
        assert!(tweak("partitioned = true", "disk_mib = 8").contains("disk_mib: from 16 to 4096"));
        assert!(tweak("partitioned = true", "copies = 0").contains("copies: 0 programs"));
        assert!(
            tweak("partitioned = true", "packages = [\"xz-utils\"]").contains("program = \"roi\"")
        );
        assert!(tweak("partitioned = true", "prepare = \"seq 3\"").contains("there are none"));
        assert!(tweak("partitioned = true", "compiler = \"clang\"").contains("dynamic = true"));
        assert!(tweak("partitioned = true", "compiler = \"tcc\"").contains("`tcc`"));
        assert!(
            tweak(
                "{ cpus = 0, memory_mib = 64 }",
                "{ cpus = 0, memory_mib = 63 }"
            )
            .contains("machines.three: nodes[2].memory_mib")
        );
        let twice = format!(
            "{SMALL}\n{}",
            SMALL
                .split_once("[[case]]")
                .map_or("", |(_, case)| case)
                .replace("name =", "[[case]]\nname =")
        );
        assert!(error(&twice).contains("is there twice"));
    }

    #[test]
    fn patterns_choose_cases() {
        let cases = parse(SMALL).expect("it is right").cases;
        let count = |pattern: &str| cases.iter().filter(|case| selected(pattern, case)).count();
        assert_eq!(count("str*"), 8);
        assert_eq!(count("stream"), 8);
        assert_eq!(count("chase"), 0);
        assert_eq!(count("*/t?o/*"), 4);
        assert_eq!(count("stream/*/far/hand"), 2);
    }

    #[test]
    fn the_scenarios_of_the_repository_are_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let scenario = read(&entry.expect("an entry").path()).expect("a right scenario");
            assert!(!scenario.cases.is_empty());
            // Balancing and the agent depend on the guest's clock, which is independent of the
            // host's speed only under icount.
            for case in scenario
                .cases
                .iter()
                .filter(|case| !matches!(case.policy, Policy::Kernel | Policy::Hand))
            {
                assert!(
                    case.machine.icount,
                    "{} compares by a clock that the host stretches",
                    case.id()
                );
            }
            seen += 1;
        }
        assert!(seen >= 4);
    }
}
