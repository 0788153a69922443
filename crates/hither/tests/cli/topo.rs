//! `hither topo`.

use insta::assert_snapshot;

use crate::{Lab, keys};

#[test]
fn a_machine_of_the_papers() {
    assert_snapshot!(Lab::new().run("hither topo numachine-4"), @"
    exit code: 0
    ----- stdout -----
    numachine-4: ring of 4 nodes, 1 directed link; 900 ns local, 3060 ns a hop
    latencies: from the paper, not measured here
    each node: 4 CPUs, 96.00 MiB

      ╭→ 0 → 1 → 2 → 3 →╮
      ╰←────────────────╯
      (a ring goes one way)

      node  CPUs   capacity  nearest
         0     4  96.00 MiB  1 2 3
         1     4  96.00 MiB  0 2 3
         2     4  96.00 MiB  0 1 3
         3     4  96.00 MiB  0 1 2

    hops, from the node of the row
         0  1  2  3
      0  0  1  1  1
      1  1  0  1  1
      2  1  1  0  1
      3  1  1  1  0

      hops  latency  pairs  part of all
         1  3960 ns     12      100.0 %

    ----- stderr -----
    ");
}

#[test]
fn a_mesh() {
    assert_snapshot!(Lab::new().run("hither topo mesh5x5-io"), @"
    exit code: 0
    ----- stdout -----
    mesh5x5-io: mesh of 25 nodes, 80 directed links; 100 us local, 100 us a hop, 8.2 ms from storage
    latencies: from the paper, not measured here
    each node: 1 CPU, 512.00 MiB

       0 ──  1 ──  2 ──  3 ──  4
       │     │     │     │     │
       5 ──  6 ──  7 ──  8 ──  9
       │     │     │     │     │
      10 ── 11 ── 12 ── 13 ── 14
       │     │     │     │     │
      15 ── 16 ── 17 ── 18 ── 19
       │     │     │     │     │
      20 ── 21 ── 22 ── 23 ── 24

      hops  latency  pairs  part of all
         1   200 us     80       13.3 %
         2   300 us    124       20.7 %
         3   400 us    136       22.7 %
         4   500 us    120       20.0 %
         5   600 us     80       13.3 %
         6   700 us     40        6.7 %
         7   800 us     16        2.7 %
         8   900 us      4        0.7 %

    ----- stderr -----
    ");
}

#[test]
fn a_torus_leads_around() {
    assert_snapshot!(Lab::new().run("hither topo torus:2x3x3 | sed '/hops/,$d'"), @"
    exit code: 0
    ----- stdout -----
    torus:2x3x3: torus of 18 nodes, 90 directed links; 70 ns local, 34 ns a hop
    latencies: built-in defaults, not measured
    each node: 1 CPU

      layer 0            layer 1
        ┊    ┊    ┊         ┊     ┊     ┊
      ┄ 0 ── 1 ── 2 ┄    ┄  9 ── 10 ── 11 ┄
        │    │    │         │     │     │
      ┄ 3 ── 4 ── 5 ┄    ┄ 12 ── 13 ── 14 ┄
        │    │    │         │     │     │
      ┄ 6 ── 7 ── 8 ┄    ┄ 15 ── 16 ── 17 ┄
        ┊    ┊    ┊         ┊     ┊     ┊
      (dotted lines lead around; each node has links to its places in the layers before and after,
      ... around as well)


    ----- stderr -----
    ");
}

#[test]
fn hypercubes_by_gray_code_and_trees_and_rings() {
    let line = "for t in hypercube:4 hypercube:3x2 hypercube:5 ring:2x3x4 tree:2x3 mesh:4; do \
                hither topo $t | sed -n '5,/^$/p'; done";
    assert_snapshot!(Lab::new().run(line), @"
    exit code: 0
    ----- stdout -----
         ┊     ┊     ┊     ┊
      ┄  0 ──  1 ──  3 ──  2 ┄
         │     │     │     │
      ┄  4 ──  5 ──  7 ──  6 ┄
         │     │     │     │
      ┄ 12 ── 13 ── 15 ── 14 ┄
         │     │     │     │
      ┄  8 ──  9 ── 11 ── 10 ┄
         ┊     ┊     ┊     ┊
      (dotted lines lead around to the other side)

      ┄   [0 1] ──   [2 3] ──   [6 7] ──   [4 5] ┄
              │          │          │          │
      ┄   [8 9] ── [10 11] ── [14 15] ── [12 13] ┄
      (dotted lines lead around to the other side)

      layer 0                     layer 1
         ┊     ┊     ┊     ┊         ┊     ┊     ┊     ┊
      ┄  0 ──  1 ──  3 ──  2 ┄    ┄ 16 ── 17 ── 19 ── 18 ┄
         │     │     │     │         │     │     │     │
      ┄  4 ──  5 ──  7 ──  6 ┄    ┄ 20 ── 21 ── 23 ── 22 ┄
         │     │     │     │         │     │     │     │
      ┄ 12 ── 13 ── 15 ── 14 ┄    ┄ 28 ── 29 ── 31 ── 30 ┄
         │     │     │     │         │     │     │     │
      ┄  8 ──  9 ── 11 ── 10 ┄    ┄ 24 ── 25 ── 27 ── 26 ┄
         ┊     ┊     ┊     ┊         ┊     ┊     ┊     ┊
      (dotted lines lead around; each node has links to its places in the layers that differ in one
      ... bit)

      ring 0 ╭→ (ring 1) → (ring 2) →╮
             ╰←──────────────────────╯
      ring 1 ╭→ 0 → 1 → 2 →╮
             ╰←────────────╯
      ring 2 ╭→ 3 → 4 → 5 →╮
             ╰←────────────╯
      (a ring goes one way)

      ┬─┬─ 0
      │ ├─ 1
      │ ╰─ 2
      ╰─┬─ 3
        ├─ 4
        ╰─ 5

      0 ── 1 ── 2 ── 3


    ----- stderr -----
    ");
}

#[test]
fn a_file() {
    let lab = Lab::new();
    lab.write(
        "box.toml",
        "distances = [[10, 21, 31], [21, 10, 31], [31, 31, 10]]\nlocal_ns = 90\nstorage_ns = \
         80_000\ncpus = 8\n\
         capacity = \"64GiB\"\n[[nodes]]\nname = \"left\"\n[[nodes]]\nname = \"right\"\nweight = \
         2\n[[nodes]]\nname = \"cxl\"\n\
         cpus = 0\ncapacity = \"256GiB\"\n",
    );
    assert_snapshot!(lab.run("hither topo box.toml"), @"
    exit code: 0
    ----- stdout -----
    box.toml: matrix of 3 nodes; 90 ns local, 80 us from storage
    latencies: by the file's distances, not measured

      node  name   CPUs    capacity  weight  nearest
         0  left      8   64.00 GiB       1  1
         1  right     8   64.00 GiB       2  0
         2  cxl       0  256.00 GiB       1  0 1

    latency in ns, from the node of the row
           0    1    2
      0   90  189  279
      1  189   90  279
      2  279  279   90

    ----- stderr -----
    ");
    lab.write("bad.toml", "shape = \"mesh:2x2\"\nhop = 5\n");
    assert_snapshot!(lab.run("hither topo bad.toml"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: bad.toml:2: unknown field `hop`, expected one of `shape`, `latency_ns`, `distances`,
      ... `local_ns`, `hop_ns`, `storage_ns`, `cpus`, `capacity`, `weight`, `nodes`
    ");
    assert_snapshot!(lab.run("hither topo none.toml"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: none.toml: No such file or directory (os error 2)
    ");
}

#[test]
fn the_presets() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither topo --list"), @"
    exit code: 0
    ----- stdout -----
    mesh5x5-io: 25 nodes in a mesh that cache blocks of 4 KiB over disks: 0.1 ms a node, 0.1 ms a
      ... hop, 8.2 ms from disk
        source: Son, Kandemir, Zhang and Garg, topology-aware I/O caching, table 1

    numachine-4: NUMAchine: 4 stations of 4 processors on a ring: 900 ns local, 3960 ns remote
        source: Ho, page placement based on predicted cache behaviour (thesis, Toronto 2004),
      ... section 5.1.1 and table 5.1

    opteron2: two AMD Opterons: 70 ns local, 104 ns remote
        source: Zhou, Meng and Ma, dual-layered file cache on cc-NUMA, section 1

    origin2000-16: SGI Origin2000: 16 nodes of 2 processors, two on each of 8 routers in a
      ... hypercube: 300 ns local, 100 ns a router
        source: Nikolopoulos et al., ICS 2000, section 3.1; Laudon and Lenoski, ISCA 1997

    ----- stderr -----
    ");
    let document = lab.json("hither topo --list --json");
    let names = document["presets"].as_array().unwrap().iter();
    for name in names.map(|preset| preset["name"].as_str().unwrap()) {
        assert_eq!(
            lab.json(&format!("hither topo {name} --json"))["name"],
            name
        );
    }
}

#[test]
fn one_document_for_programs() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither topo opteron2 --json"), @r#"
    exit code: 0
    ----- stdout -----
    {
      "axes": [],
      "hop_ns": 34,
      "kind": "uniform",
      "latency_from": "preset",
      "levels": [],
      "links": 2,
      "local_ns": 70,
      "name": "opteron2",
      "nodes": [
        {
          "capacity_bytes": null,
          "cpus": 1,
          "hops": [
            0,
            1
          ],
          "latency_ns": [
            70,
            104
          ],
          "name": "",
          "neighbours": [
            1
          ],
          "weight": 1
        },
        {
          "capacity_bytes": null,
          "cpus": 1,
          "hops": [
            1,
            0
          ],
          "latency_ns": [
            104,
            70
          ],
          "name": "",
          "neighbours": [
            0
          ],
          "weight": 1
        }
      ],
      "storage_ns": null
    }

    ----- stderr -----
    "#);
    let this = lab.json("hither topo --json");
    assert_eq!(
        (&this["name"], &this["kind"]),
        (&"this".into(), &"matrix".into())
    );
    let nodes = this["nodes"].as_array().unwrap();
    assert!(!nodes.is_empty());
    for (number, node) in nodes.iter().enumerate() {
        assert_eq!(node["hops"][number], 0);
        assert_eq!(node["latency_ns"].as_array().unwrap().len(), nodes.len());
    }
    assert_eq!(
        keys(&nodes[0]),
        [
            "capacity_bytes",
            "cpus",
            "hops",
            "latency_ns",
            "name",
            "neighbours",
            "weight"
        ]
    );
}

/// No latency of a topology is measured, and each output says where it is from.
#[test]
fn latencies_are_marked_as_not_measured() {
    let lab = Lab::new();
    let matrix = "latency_ns = [[80, 130], [130, 80]]";
    lab.write("matrix.toml", matrix);
    lab.write("distances.toml", "distances = [[10, 21], [21, 10]]");
    lab.write("shape.toml", "shape = \"mesh:2x2\"");
    lab.write("part.toml", "shape = \"mesh:2x2\"\nhop_ns = 50");
    lab.write(
        "all.toml",
        "shape = \"mesh:2x2\"\nhop_ns = 50\nlocal_ns = 80",
    );
    for (topology, from) in [
        ("this", "distances"),
        ("4", "defaults"),
        ("opteron2", "preset"),
        ("matrix.toml", "file"),
        ("distances.toml", "distances of the file"),
        ("shape.toml", "defaults"),
        ("part.toml", "file and defaults"),
        ("all.toml", "file"),
    ] {
        let document = lab.json(&format!("hither topo {topology} --json"));
        assert_eq!(document["latency_from"], from, "{topology}");
        let ran = lab.run(&format!("hither topo {topology}"));
        let marks = |line: &&str| line.starts_with("latencies: ") && line.contains("not measured");
        assert_eq!(ran.stdout().lines().filter(marks).count(), 1, "{ran}");
    }
}

#[test]
fn pictures() {
    let lab = Lab::new();
    let ran = lab.run(
        "hither topo torus:4x4 --output t.svg && hither topo -q torus:4x4 -o t.png && \
                       hither topo torus:4x4 -o t.svg --json | head -c 1",
    );
    assert_snapshot!(ran, @"
    exit code: 0
    ----- stdout -----
    {

    ----- stderr -----
    hither: wrote t.svg
    hither: wrote t.svg
    ");
    let svg = std::fs::read_to_string(lab.path("t.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("<title>torus:4x4</title>"));
    // A line for each of 32 pairs of neighbours.
    assert_eq!(svg.matches("<polyline").count(), 32);
    assert!(
        std::fs::read(lab.path("t.png"))
            .unwrap()
            .starts_with(b"\x89PNG")
    );
    assert_eq!(lab.names(), ["t.png", "t.svg"]);

    assert_snapshot!(lab.run("hither topo 300 -o a.svg; hither topo 4 -o no/a.svg; hither topo 4 \
                              -o a.jpg"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: 300: 300 nodes, but a picture shows at most 256
    hither: cannot write no/a.svg: no: No such file or directory (os error 2)
    error: invalid value 'a.jpg' for '--output <FILE>': the name ends in none of .svg, .png

    For more information, try '--help'.
    ");
    assert_eq!(lab.names(), ["t.png", "t.svg"]);
}

#[test]
fn what_is_no_topology() {
    let line = "hither topo mash:5x5; hither topo mesh:0x5; hither topo mesh:99999999999x2; \
                hither topo 5000; hither topo ''";
    assert_snapshot!(Lab::new().run(line), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: unknown topology `mash:5x5` (did you mean `mesh`?); write a number of nodes, mesh:5x5,
      ... torus:4x4x4, hypercube:4, ring:4x4, tree:4x4, or one of mesh5x5-io, numachine-4, opteron2,
      ... origin2000-16; or `this` machine, or a file that ends in .toml
    hither: `mesh:0x5`: `0` is not a whole number from 1 to 1024; write for example `mesh:5x5` (5
      ... rows of 5 nodes)
    hither: `mesh:99999999999x2`: `99999999999` is not a whole number from 1 to 1024; write for
      ... example `mesh:5x5` (5 rows of 5 nodes)
    hither: `5000` has more than 1024 nodes
    hither: unknown topology ``; write a number of nodes, mesh:5x5, torus:4x4x4, hypercube:4,
      ... ring:4x4, tree:4x4, or one of mesh5x5-io, numachine-4, opteron2, origin2000-16; or `this`
      ... machine, or a file that ends in .toml
    ");
}

#[test]
fn the_picture_in_the_documents_is_what_is_drawn() {
    let lab = Lab::new();
    lab.run("hither topo -q origin2000-16 -o o.svg");
    let drawn = std::fs::read(lab.path("o.svg")).unwrap();
    let root = env!("CARGO_MANIFEST_DIR").to_owned() + "/../..";
    let kept = std::fs::read(root + "/docs/origin2000-16.svg").unwrap();
    assert!(
        drawn == kept,
        "hither topo origin2000-16 -o docs/origin2000-16.svg"
    );
}
