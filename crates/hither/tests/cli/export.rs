//! `hither export`: what other tools are given.

use insta::assert_snapshot;

use crate::Lab;

#[test]
fn csv_goes_to_standard_output_or_a_file() {
    let lab = Lab::new();
    lab.write("t.trace", "7\n9\n7\n");
    assert_snapshot!(lab.run("hither export t.trace --format csv -o -"), @"
    exit code: 0
    ----- stdout -----
    time,object,size,op,next_access_vtime,thread,node,count
    0,7,4096,read,3,0,0,1
    1,9,4096,read,-1,0,0,1
    2,7,4096,read,-1,0,0,1

    ----- stderr -----
    hither: 3 references in -
    ");
    assert_snapshot!(lab.run("hither export t.trace --format csv -o t.csv && cat t.csv"), @"
    exit code: 0
    ----- stdout -----
    time,object,size,op,next_access_vtime,thread,node,count
    0,7,4096,read,3,0,0,1
    1,9,4096,read,-1,0,0,1
    2,7,4096,read,-1,0,0,1

    ----- stderr -----
    hither: 3 references in t.csv
    ");
    assert_snapshot!(lab.run("hither export t.trace --format csv -o t.csv"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: t.csv: already exists (--force replaces it, -o names another)
    ");
    let again = lab.run("hither export t.csv --format csv -q -o t.csv --force && cat t.csv");
    assert_snapshot!(again, @"
    exit code: 0
    ----- stdout -----
    time,object,size,op,next_access_vtime,thread,node,count,ttl,cost
    0,7,4096,read,3,0,0,1,0,1
    1,9,4096,read,-1,0,0,1,0,1
    2,7,4096,read,-1,0,0,1,0,1

    ----- stderr -----
    ");
    assert_eq!(lab.names(), ["t.csv", "t.trace"]);
}

#[test]
fn every_format_gives_the_same_results() {
    let lab = Lab::with_loop();
    let results = |trace: &str| lab.json(&format!("hither sim {trace} --json"))["results"].take();
    for format in ["csv", "hither", "oracle-general"] {
        let ran = lab.run(&format!(
            "hither export loop.trace --format {format} -o {format}"
        ));
        assert_eq!((ran.code, ran.stdout()), (0, ""), "{ran}");
        assert_eq!(results(format), results("loop.trace"), "{format}");
    }
}

#[test]
fn raw_keys_become_a_trace_folder() {
    let lab = Lab::new();
    lab.write("keys.bin", [0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 7]);
    assert_snapshot!(lab.run("hither export keys.bin --from u32be -o keys.hither"), @"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: 3 references in keys.hither
    ");
    assert_eq!(
        lab.json("hither stat keys.hither --json")["stats"]["references"],
        3
    );
}

#[test]
fn a_folder_cannot_go_to_standard_output() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither export loop.trace -o -"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: hither is a folder and cannot go to standard output
    ");
    assert_snapshot!(lab.run("hither export loop.trace --format cvs -o x"), @r#"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'cvs' for '--format <NAME>': unknown trace format "cvs" (known: csv,
      ... hither, oracle-general)

    For more information, try '--help'.
    "#);
    assert_eq!(lab.names(), ["loop.trace"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let lab = Lab::new();
    lab.write("t.trace", crate::rounds(1000, 100));
    let ran = lab.run("hither export t.trace --format csv -q -o - | head -1");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn the_formats_are_listed() {
    assert_snapshot!(Lab::new().run("hither export --help"), @"
    exit code: 0
    ----- stdout -----
    Write a trace for other tools, such as libCacheSim

    Usage: hither export [OPTIONS] --output <FILE> <TRACE>

    Arguments:
      <TRACE>
              The trace, in any format that can be read

    Options:
          --format <NAME>
              Format to write

              [default: hither]

      -q, --quiet
              Print only results and errors: no progress and no notes

          --from <NAME>
              Format of the trace that is read [default: by its content]

          --columns <key=N[,...]>
              Read delimited text of these columns, as key=3,size=4,time=1,op=2

              A column is counted from 1, or has the name that the first line gives it. The key is
              any text, or with `key=3:hex` a hexadecimal number; `count` says how many references a
              line is. Sizes and times must be numbers. An op is a read (r, read, get, 28) or a
              write (w, write, set, delete, 2a); without one, all are reads. Fields may be in
              quotation marks, as in CSV.

          --no-header
              The first line is a record, and not the names of the columns

          --delimiter <C>
              What separates columns: tab, comma, bar, semicolon, space, or a character

              By default it is what the first line has of `,`, `;`, `|` and tab, or white space if
              it has none of them.

          --block <BYTES>
              Block size, as 4096 or 64KiB

              [default: 4KiB]

          --keep-repeats
              Count a block again if a request begins in the block where the thread's last one ended

          --no-in-kernel
              Leave out transfers inside the kernel (sendfile, copy_file_range, splice)

          --maps
              Count the mapping of a file range as one read of the range

              Later accesses through the mapping are not in the trace.

          --memory <BYTES>
              Keep at most BYTES of the trace in memory [default: half of the free memory]

              The rest goes to a temporary file in TMPDIR or /var/tmp. No result depends on it.

      -o, --output <FILE>
              The file or folder to write; - is standard output

          --force
              Replace an existing file or folder

      -h, --help
              Print help (see a summary with '-h')

    Formats:
      csv             CSV with object, op, next access, thread, node and count (libCacheSim csv)
      hither          trace folder, a row a reference
      oracle-general  binary, 24 bytes a reference with its next access (libCacheSim oracleGeneral)

    Examples:
      hither export build.hither --format oracle-general -o build.oracleGeneral
      hither export build.hither --format csv -o - | zstd > build.csv.zst
      hither export --from u32be web07.trace.xz -o web07.hither

    ----- stderr -----
    ");
}

#[test]
fn what_is_no_file_is_not_replaced_by_one() {
    let lab = Lab::with_loop();
    let line = "mkfifo pipe && hither export loop.trace --format csv --force -o pipe; \
                hither sweep -t loop.trace -p lru -s 1 --to csv --force -o pipe; ls -F";
    assert_snapshot!(lab.run(line), @"
    exit code: 0
    ----- stdout -----
    loop.trace
    pipe|

    ----- stderr -----
    hither: pipe: not a regular file, and not replaced by one
    hither: pipe: not a regular file, and not replaced by one
    ");
}

#[test]
fn a_full_standard_output_is_named() {
    let lab = Lab::with_loop();
    let line = "hither export loop.trace --format csv -q -o - >/dev/full; hither gen scan -n 9 \
                --format csv -q -o - >/dev/full";
    assert_snapshot!(lab.run(line), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: standard output: No space left on device (os error 28)
    hither: standard output: No space left on device (os error 28)
    ");
}
