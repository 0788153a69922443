//! What users write for a policy, and what they are told when it is wrong.

use hither_core::Spec;
use hither_core::registry::{self, ReplacementEntry};
use hither_core::spec::Value;

fn error(text: &str) -> String {
    text.parse::<Spec>().expect_err("it is wrong").to_string()
}

/// The names of the policies that `admit` admits, as messages list them.
fn names(admit: impl Fn(&ReplacementEntry) -> bool) -> String {
    let admitted = registry::replacement_policies()
        .iter()
        .filter(|entry| admit(entry));
    let names: Vec<&str> = admitted.map(|entry| entry.name).collect();
    names.join(", ")
}

#[test]
fn parameters_default_and_are_written_out() {
    let written = |text: &str| text.parse::<Spec>().expect(text).to_string();
    assert_eq!(written("lru"), "lru");
    assert_eq!(written(" lru{} "), "lru");
    assert_eq!(
        written("pcc"),
        "pcc{threshold=100,sample=20,entries=65536,sites=4096,counters=weighted,expire=2,steady=1,\
         periods=power,period_of=stream,gain=segments,sequential=keep,mapped=classified,\
         other=lru,as=hither}"
    );
    assert_eq!(
        written("lru-k{ k = 3 }"),
        written("lru-k{k=3}"),
        "spaces are left out"
    );
    let counts = written("pcc{entries=64k,sites=1M}");
    assert!(counts.contains("entries=64000,sites=1000000"), "{counts}");
    let list = <Spec>::parse_list("lru,ubm{threshold=5,other=arc},opt").expect("three policies");
    assert_eq!(list.len(), 3);
    assert_eq!(
        list[1].to_string(),
        "ubm{threshold=5,expire=2,steady=1,periods=power,period_of=stream,gain=segments,\
         sequential=keep,mapped=classified,other=arc,as=hither}"
    );
}

#[test]
fn a_preset_sets_what_is_not_given() {
    let parsed = |text: &str| text.parse::<Spec>().expect(text);
    assert_eq!(
        parsed("ubm{as=paper}").to_string(),
        "ubm{threshold=3,expire=0,steady=0,periods=exact,period_of=stream,gain=fitted,\
         sequential=keep,mapped=classified,other=lru,as=paper}"
    );
    // What is given beside it wins, on either side of it.
    let given = parsed("ubm{as=paper,expire=2}");
    assert_eq!(given, parsed("ubm{expire=2,as=paper}"));
    assert_eq!(given.value("expire"), Some(Value::Real(2.0)));
    assert_eq!(given.value("steady"), Some(Value::Count(0)));
    // What it writes it reads, and the other preset is the default.
    assert_eq!(given, parsed(&given.to_string()));
    assert_eq!(parsed("pcc{as=hither}"), parsed("pcc"));
    assert_eq!(
        parsed("pcc").with("as", Value::Name("paper")),
        Some(parsed("pcc{as=paper}"))
    );
    assert_eq!(
        error("pcc{as=papers}"),
        "`pcc`: `as=papers` is not allowed: as is one of hither, paper"
    );
}

#[test]
fn a_value_is_found_and_replaced_by_name() {
    let spec: Spec = "pcc{sample=7}".parse().expect("valid");
    assert_eq!(spec.value("sample"), Some(Value::Count(7)));
    assert_eq!(spec.value("samples"), None);
    let other: Spec = "pcc{sample=8}".parse().expect("valid");
    assert_eq!(spec.with("sample", Value::Count(8)), Some(other));
    assert_eq!(spec.with("sample", Value::Count(0)), None, "out of range");
    assert_eq!(spec.with("sample", Value::Real(8.0)), None, "another type");
}

#[test]
fn wrong_ones_say_what_is_allowed() {
    assert_eq!(
        error("pcx"),
        format!(
            "unknown policy `pcx` (did you mean `pcc`?); the policies are {}",
            names(|_| true)
        )
    );
    assert!(error("belady").starts_with("unknown policy `belady`; the policies are"));
    assert_eq!(
        error("ubm{treshold=2}"),
        "`ubm` has no parameter `treshold` (did you mean `threshold`?); \
         it has threshold, expire, steady, periods, period_of, gain, sequential, mapped, other, as"
    );
    assert_eq!(error("lru{k=2}"), "`lru` has no parameter `k`; it has none");
    assert_eq!(
        error("pcc{sample=0}"),
        "`pcc`: `sample=0` is not allowed: sample is a whole number from 1 to 1048576"
    );
    assert_eq!(
        error("pcc{threshold=-1}"),
        "`pcc`: `threshold=-1` is not allowed: threshold is a whole number of at least 1"
    );
    for count in ["k", "1kk", "1.5k", "+1", "20000000000G", "1 k"] {
        let allowed = "is not allowed: threshold is a whole number";
        assert!(
            error(&format!("pcc{{threshold={count}}}")).contains(allowed),
            "{count}"
        );
    }
    assert_eq!(
        error("pcc{other=opt}"),
        format!(
            "`pcc`: `other=opt` is not allowed: other is one of {}",
            names(|entry| entry.needs.nothing())
        )
    );
    assert_eq!(
        error("dear{expire=NaN}"),
        "`dear`: `expire=NaN` is not allowed: expire is a number from 0 to 1000000"
    );
    assert_eq!(
        error("pcc{sample=1,sample=2}"),
        "`pcc`: `sample` is given twice"
    );
    for text in [
        "",
        "{}",
        "pcc{",
        "pcc}",
        "pcc{sample}",
        "pcc{sample=1,}",
        "pcc{a={b}}",
        "pcc{}x",
    ] {
        assert!(
            error(text).contains("write NAME"),
            "{text}: {}",
            error(text)
        );
    }
}

#[test]
fn a_placement_may_start_from_another() {
    type Placement = Spec<hither_core::placement::PlacementEntry>;
    let parsed = |text: &str| text.parse::<Placement>();
    let plain = parsed("upm").unwrap();
    assert!(plain.to_string().contains("initial=first-touch"), "{plain}");
    assert!(!plain.needs().totals);
    let aware = parsed("upm{initial=cache-aware}").unwrap();
    assert!(parsed("upm{initial=a-priori}").unwrap().needs().totals);
    assert_eq!(parsed(&aware.to_string()).unwrap(), aware);
    // Not of itself, and not of what places files.
    for text in [
        "upm{initial=upm}",
        "upm{initial=dual-layer}",
        "upm{initial=lru}",
    ] {
        let told = parsed(text).expect_err(text).to_string();
        assert!(told.contains("initial is one of a-priori, "), "{told}");
    }
}
