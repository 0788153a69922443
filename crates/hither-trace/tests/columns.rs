//! Delimited text whose columns the user names: what becomes a key, and what is refused with its
//! line.

use hither_core::registry::Needs;
use hither_core::{Access, Op};
use hither_trace::{Input, LoadOptions, Result, Trace};

fn read(text: &str, columns: &str) -> Result<Trace> {
    let input = Input::new("input", text.as_bytes())?;
    Trace::read(input, Some(columns), &LoadOptions::default())
}

fn accesses(trace: &Trace) -> Vec<Access> {
    let mut accesses = Vec::new();
    let needs = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    trace
        .fill(0, trace.references(), needs, &mut accesses)
        .unwrap();
    accesses
}

/// The keys in the order of their first use, numbers as they are.
fn keys(text: &str, columns: &str) -> Vec<u32> {
    let trace = read(text, columns).unwrap();
    accesses(&trace).iter().map(|access| access.index).collect()
}

#[test]
fn any_separator_any_order_and_any_keys() {
    let numbers = [7, 8, 7];
    for (text, columns) in [
        (
            "0,7,10\n1,8,10\n2,7,10\n",
            "columns{key=2,time=1,size=3,header=no}",
        ),
        (
            "time,id,n\n0,7,10\n1,8,10\n2,7,1\n",
            "columns{key=2,time=1,size=3}",
        ),
        (
            "# time, Id, n\n0,7,10\n1,8,10\n2,7,1\n",
            "columns{key=id,time=time}",
        ),
        ("7 0\n\n8   1\n 7\t2\n", "columns{key=1,time=2,header=no}"),
        ("7:0\n8:1\n7:2\n", "columns{key=1,header=no,delimiter=:}"),
        (
            "7,a;0\n8,b;1\n7,a;2\n",
            "columns{key=1:hex,header=no,delimiter=comma}",
        ),
        ("x\t7\t\ny\t8\t\n\t7\t\r\n", "columns{key=2,header=no}"),
        (
            "\"a\tb\"\t7\t\"\"\n\t8\t\"\"\"\"\nc\t\"7\"\t\n",
            "columns{key=2,header=no}",
        ),
        (
            "\"a b\" 7 \"\"\nx \"8\" y\n\"\" 7 z\n",
            "columns{key=2,header=no,delimiter=space}",
        ),
    ] {
        assert_eq!(keys(text, columns), numbers, "{columns}: {text:?}");
    }
    // Hexadecimal keys are numbers with and without 0x, so neighbours stay neighbours.
    assert_eq!(
        keys("0x1f\n1E\n0x1f\n", "columns{key=1:hex,header=no}"),
        [31, 30, 31]
    );
    // As text they are names, and so are numbers with zeros before them.
    assert_eq!(
        keys("0x1f\n1e\n0x1f\n07\n7\n", "columns{key=1,header=no}"),
        [0, 1, 0, 2, 3]
    );
    let quoted = "k,op\n\"a,b\",get\n\"a\"\"b\",SET\n\"a,b\",delete\n";
    let trace = read(quoted, "columns{key=k,op=op}").unwrap();
    let found: Vec<(u32, bool)> = accesses(&trace)
        .iter()
        .map(|access| (access.block.0, access.op == Op::Write))
        .collect();
    assert_eq!(found, [(0, false), (1, true), (0, true)]);
    assert_eq!(trace.format(), "columns{key=k,op=op}");
    let counted = read("a,3\nb,0\na,2\n", "columns{key=1,count=2,header=no}").unwrap();
    assert_eq!((counted.references(), counted.blocks()), (5, 1));
    // Line ends and blank lines make no record.
    let trace = read("\nkey time\n\na 1\r\nb 2", "columns{key=1,time=2}").unwrap();
    assert_eq!(trace.references(), 2);
    assert_eq!(trace.counts().skipped.separators, 3);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, columns, problem) in [
        (
            "1,2\n3,4\n",
            "columns{key=2}",
            "input:1: numbers in place of the names",
        ),
        (
            "a,2.5\n",
            "columns{key=1,time=2}",
            "input:1: numbers in place of the names",
        ),
        ("a,b\n1,2\n", "columns{key=3}", "input:1: column 3 of 2"),
        ("a,b\n1,2\n", "columns{key=c}", "input:1: no column \"c\""),
        ("a,A\n1,2\n", "columns{key=a}", "input:1: two columns \"a\""),
        ("a,b\n1,2,3\n", "columns{key=a}", "input:2: 3 fields, not 2"),
        ("a\tb\n1\n", "columns{key=a}", "input:2: 1 fields, not 2"),
        ("a,b\n,2\n", "columns{key=a}", "input:2: no object"),
        (
            "a,b\n1,x\n",
            "columns{key=a,size=b}",
            "input:2: not a decimal number",
        ),
        (
            "a,b\n1,-1\n",
            "columns{key=a,time=b}",
            "input:2: not a decimal number",
        ),
        (
            "a,b\n1,hit\n",
            "columns{key=a,op=b}",
            "input:2: an op that is neither",
        ),
        (
            "a,b\nxyz,1\n",
            "columns{key=a:hex}",
            "input:2: not a hexadecimal number",
        ),
        (
            "a,b\n1,9999999999\n",
            "columns{key=a,count=b}",
            "input:2: more than 16777216",
        ),
        (
            "a,b\n\"1,2\n",
            "columns{key=a}",
            "input:2: a quotation mark without its other",
        ),
        (
            "a,b\n\"1\"2,2\n",
            "columns{key=a}",
            "input:2: text behind a quotation mark",
        ),
        (
            "a b\n\"1\"2 2\n",
            "columns{key=a}",
            "input:2: text behind a quotation mark",
        ),
        (
            "a,b;c\n1,2;3\n",
            "columns{key=1}",
            "input:1: several separators: --delimiter",
        ),
        (
            "a\n",
            "columns{key=1,foo=2}",
            "\"columns{key=1,foo=2}\": \"foo\" is none of",
        ),
        ("a\n", "columns", "unknown trace format \"columns\""),
    ] {
        let error = read(text, columns).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{columns} {text:?}: {error}");
    }
}
