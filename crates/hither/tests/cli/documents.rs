//! docs/trace.md: its examples run as written, and it names every column that a trace has.
//! `HITHER_PYTHON` names a Python that has duckdb, pandas and pyarrow.

use std::path::Path;

use crate::Lab;

/// Prints every column of the tables with its type.
const COLUMNS: &str = r#"
import duckdb
for table in ["accesses", "objects", "sites"]:
    for name, kind, *_ in duckdb.sql(f"describe from 'trace.hither/{table}.parquet'").fetchall():
        print(table, name)
"#;

fn document() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    std::fs::read_to_string(root.join("docs/trace.md")).unwrap()
}

/// The code blocks in `language`.
fn examples<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let blocks = document.split(fence.as_str()).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_examples_run_and_every_column_is_described() {
    let Some(python) = std::env::var_os("HITHER_PYTHON") else {
        println!("skipped: HITHER_PYTHON is not set");
        return;
    };
    let python = python.to_str().unwrap();
    let lab = Lab::with_recording();
    std::fs::rename(lab.path("cat.hither"), lab.path("trace.hither")).unwrap();
    let document = document();
    let (sql, pandas) = (examples(&document, "sql"), examples(&document, "python"));
    assert!(!sql.is_empty() && !pandas.is_empty());

    let run = |script: &str| {
        lab.write("script.py", script);
        let ran = lab.run(&format!("{python} script.py"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{script}");
        ran.stdout().to_owned()
    };
    for query in sql {
        let said = run(&format!("import duckdb\nprint(duckdb.sql('''{query}'''))"));
        assert!(said.contains("/data"), "{query}: {said}");
    }
    for script in pandas {
        let said = run(script);
        assert!(said.contains("/data"), "{script}: {said}");
    }
    for line in run(COLUMNS).lines() {
        let (table, column) = line.split_once(' ').unwrap();
        let heading = format!("## `{table}.parquet`");
        let section = document.split(heading.as_str()).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        assert!(
            section.contains(&format!("\n| `{column}` |")),
            "{line} is not in the document"
        );
    }
    for file in [
        "accesses.parquet",
        "objects.parquet",
        "sites.parquet",
        "meta.json",
    ] {
        assert!(document.contains(&format!("\n| `{file}` |")), "{file}");
    }
    let meta = std::fs::read_to_string(lab.path("trace.hither/meta.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let more = meta["more"].as_object().unwrap().keys();
    for key in crate::keys(&meta)
        .into_iter()
        .chain(more.map(String::as_str))
    {
        assert!(document.contains(&format!("`{key}`")), "{key} of meta.json");
    }
}
