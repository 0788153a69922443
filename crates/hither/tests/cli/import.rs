//! `hither import`: any format in, a trace folder out.

use insta::assert_snapshot;

use crate::{Lab, rounds};

#[test]
fn what_another_tool_recorded_is_taken_over() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither import -o loop.hither loop.trace"), @"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: 30 rows of lirs in loop.hither
    ");
    let results = |trace: &str| lab.json(&format!("hither sim {trace} --json"))["results"].take();
    assert_eq!(results("loop.hither"), results("loop.trace"));
}

#[test]
fn standard_input_may_be_packed() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("gzip <loop.trace | hither import - --format libcachesim-txt"), @"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: 30 rows of libcachesim-txt in trace.hither
    ");
    assert_eq!(lab.names(), ["loop.trace", "trace.hither"]);
    let references = |line: &str| lab.json(line)["stats"]["references"].take();
    assert_eq!(references("hither stat trace.hither --json"), 30);
    assert_eq!(references("hither stat - --json <loop.trace"), 30);
}

#[test]
fn requests_keep_their_files_and_sizes() {
    let lab = Lab::new();
    lab.write(
        "disk.csv",
        "128166372003061629,usr,0,Read,8192,24576,41286\n\
         128166372016382155,usr,1,Write,0,512,1963\n",
    );
    assert_snapshot!(lab.run("hither import disk.csv -o disk.hither && hither stat disk.hither"), @"
    exit code: 0
    ----- stdout -----
    references    7 to 7 distinct blocks of 4.00 KiB (28.00 KiB)
    requests      2 in 1.33 s, 0.0 % sequential
    bytes         24.00 KiB read, 512 B written, 0 B of these inside the kernel; 0 B mapped
    made by       1 call site in 1 thread of 1 process

    LRU stack distances, in blocks: what a cache of that size would add to the hits
          below    share      sum
      first use  100.0 %  100.0 %  ########################################

       share  references  blocks       read  written  file
      85.7 %           6       6  24.00 KiB      0 B  usr disk 0
      14.3 %           1       1        0 B    512 B  usr disk 1

    ----- stderr -----
    hither: 2 rows of msr in disk.hither
    ");
}

#[test]
fn a_trace_is_replaced_on_request_only() {
    let lab = Lab::with_loop();
    lab.run("hither import -q loop.trace -o t.hither");
    lab.write("loop.trace", rounds(5, 2));
    assert_snapshot!(lab.run("hither import loop.trace -o t.hither"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: t.hither: already exists (--force replaces it, -o names another)
    ");
    assert_snapshot!(lab.run("hither import loop.trace -o t.hither --force"), @"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: 10 rows of lirs in t.hither
    ");
    assert_eq!(lab.names(), ["loop.trace", "t.hither"]);
}

#[test]
fn keys_say_nothing_about_themselves() {
    let lab = Lab::new();
    lab.write("keys.bin", [0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 7]);
    assert_snapshot!(lab.run("hither import keys.bin"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: keys.bin: not in a format that its content tells (address, alibaba, arc, blkparse,
      ... darshan-dxt, fio-iolog, hither, ibm-cos, lcs, libcachesim-csv, lirs, mooncake, msr,
      ... oracle-general, page-counts, perf-trace, spc, strace, systor, twitter, vscsi); --format
      ... names the others
    ");
    assert_snapshot!(lab.run("hither import --format u64le keys.bin"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: keys.bin: byte 8: 4 bytes of a record of 8, and then the end
    ");
    assert_snapshot!(lab.run("hither import --format u32be keys.bin"), @"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: 3 rows of u32be in trace.hither
    ");
}

#[test]
fn the_formats_are_listed() {
    assert_snapshot!(Lab::new().run("hither import --help"), @r#"
    exit code: 0
    ----- stdout -----
    Convert a trace in another format to a trace folder

    Usage: hither import [OPTIONS] <FILE>

    Arguments:
      <FILE>
              The trace, plain or packed with bzip2, gzip, xz, zstd or tar; - is standard input

              Of an archive of several files, ARCHIVE:FILE names one.

    Options:
          --format <NAME>
              Format of the trace [default: by its content]

      -q, --quiet
              Print only results and errors: no progress and no notes

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
              Size of a block: a key is one block, an address is divided by it

              [default: 4KiB]

          --memory <BYTES>
              Keep at most BYTES of the trace in memory [default: half of the free memory]

              The rest goes to a temporary file in TMPDIR or /var/tmp. No result depends on it.

      -o, --output <DIR>
              The trace folder to write

              [default: trace.hither]

          --force
              Replace an existing trace folder

      -h, --help
              Print help (see a summary with '-h')

    Formats (* has to be named, since the content does not show it):
      address           text, `l|s 0xADDRESS gap` a load or store; --block makes blocks of addresses
      (UCSD)
      alibaba           CSV, `device_id,opcode,offset,length,timestamp` a request (Alibaba block
      traces)
      arc               text, `first_block blocks x line` a request (ARC authors, .lis)
      blkparse          text, `8,0 3 1 0.000664000 697 Q W 21333 + 8 [kjournald]` an event
      (blkparse)
      darshan-dxt       text, `X_POSIX rank read segment offset length start end`
      (darshan-dxt-parser)
      fio-iolog         text, `file action offset length` after a line `fio version 2 iolog`, or 3
      (fio)
      hither            folder of Parquet files, as hither record writes it (its accesses.parquet
      also names it)
      ibm-cos           text, `timestamp REST.GET.OBJECT object size first last` a request (IBM
      object storage)
      lcs               binary, a header with statistics, then records of versions 1 to 8
      (libCacheSim lcs)
      libcachesim-csv   CSV with a line of column names, one of them object, obj_id, key, lbn or id
      (libCacheSim csv)
      libcachesim-txt * text, one key a line, a number or any text (libCacheSim txt)
      lirs              text, one decimal block number a line, `*` separates (LIRS authors)
      mooncake          JSON lines, `{"timestamp": 0, "hash_ids": [0, 7]}` a prompt (Mooncake, KV
      caches)
      msr               CSV, `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` (MSR
      Cambridge)
      oracle-general    binary, 24 bytes a record with time, object, size, next access (libCacheSim
      oracleGeneral)
      page-counts       text, accesses to pages of memory by thread and loop (lab trace)
      perf-trace        what perf trace prints of all calls, with threads and files
      spc               CSV, `ASU,LBA,size,opcode,timestamp` a request, sectors of 512 bytes (SPC:
      WebSearch, Financial)
      strace            log of strace -f, with call sites from -k and files from -y
      systor            CSV, `Timestamp,Response,IOType,LUN,Offset,Size` a request (SYSTOR 2017)
      tencent         * CSV, `timestamp,offset,size,iotype,volume` a request, in sectors of 512
      bytes (Tencent block storage)
      twitter           CSV, `timestamp,key,key size,value size,client,op,TTL` (Twitter cache
      traces, OSDI 2020)
      u32be           * binary, one 32-bit big-endian key a reference (cache2k)
      u32le           * binary, one 32-bit little-endian key a reference
      u64be           * binary, one 64-bit big-endian key a reference (corda)
      u64le           * binary, one 64-bit little-endian key a reference
      vscsi             binary, a SCSI command a record, versions 1 and 2 (VMware vscsiStats,
      CloudPhysics)
      vscsi-requests  * the same, as requests for bytes of a disk
      webcachesim     * text, `time id size [feature ...]` (webcachesim, LRB, AdaptSize)
    Delimited text of any columns is read with --columns.

    Examples:
      hither import OLTP.lis.zst -o oltp.hither
      hither import --format u32be web07.trace.xz -o web07.hither
      hither import --columns key=3,time=1 --no-header cdn.csv -o cdn.hither
      strace -f -k -o make.log make; hither import make.log -o make.hither
      ssh server zstdcat block.csv.zst | hither import - --format msr

    sim, stat and advise also read these formats as they are.

    ----- stderr -----
    "#);
}

#[test]
fn columns_of_any_text_are_named() {
    let lab = Lab::new();
    lab.write(
        "cdn.csv",
        "0,a,9,get\n1,\"b,c\",9,set\n2,a,9,get\n3,a,9,get\n",
    );
    let columns = "--columns key=2,time=1,size=3,op=4 --no-header";
    let stat = lab.json(&format!("hither stat --json {columns} cdn.csv"));
    assert_eq!(stat["trace"]["references"], 4);
    assert_eq!(stat["trace"]["distinct_blocks"], 2);
    let format = "columns{key=2,size=3,time=1,op=4,header=no}";
    assert_eq!(stat["trace"]["format"], format);
    let sim = lab.json(&format!(
        "hither sim --json -p lru -s 2 {columns} --delimiter , cdn.csv"
    ));
    assert_eq!(sim["trace"]["references"], 4);
    let imported = lab.run(&format!("hither import -q {columns} cdn.csv -o cdn.hither"));
    assert_eq!((imported.code, imported.stderr.as_str()), (0, ""));
    // As one text it is a format like others.
    let exported = format!("hither export --from '{format}' --format csv -q -o - cdn.csv");
    let exported = lab.run(&format!("{exported} | wc -l")).stdout().to_owned();
    assert_eq!(exported.trim(), "5");
    for (options, code, problem) in [
        (
            "--columns key=2,time=1",
            1,
            "cdn.csv:1: numbers in place of the names of columns",
        ),
        ("--columns key=5 --no-header", 1, "cdn.csv:1: column 5 of 4"),
        ("--columns size=1", 2, "no key is named"),
        (
            "--columns key=1 --delimiter xy",
            2,
            "a delimiter is one of bar, comma",
        ),
        ("--no-header", 2, "--columns <key=N[,...]>"),
        ("--format lirs --columns key=1", 2, "cannot be used with"),
    ] {
        let ran = lab.run(&format!("hither stat {options} cdn.csv"));
        assert_eq!(ran.code, code, "{options}");
        assert!(ran.stderr.contains(problem), "{options}: {}", ran.stderr);
    }
}
