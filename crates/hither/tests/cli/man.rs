//! `hither man`: a page for each command, with each of its options, that `man` shows without a
//! complaint.

use hither_testing::skip::skip;

use crate::Lab;
use crate::help::{commands, help, options};

#[test]
fn each_command_has_its_page() {
    let lab = Lab::new();
    let ran = lab.run("hither man pages");
    assert_eq!((ran.code, ran.stdout(), &ran.stderr[..]), (0, "", ""));
    let has_man = lab.run("man --version && command -v groff").code == 0;
    let mut expected = Vec::new();
    for command in commands(&lab) {
        let name = format!("hither {command}").trim_end().replace(' ', "-") + ".1";
        let page = std::fs::read_to_string(lab.path("pages").join(&name)).unwrap();
        for option in options(&help(&lab, &command, "--help", 100)) {
            let escaped = option.replace('-', "\\-");
            assert!(page.contains(&escaped), "{name}: {option}");
        }
        assert!(page.contains(".SH EXAMPLES\n.nf\n"), "{name}");
        if has_man {
            let ran = lab.run(&format!("man --warnings --nj --nh -l pages/{name} >shown"));
            assert_eq!((ran.code, &ran.stderr[..]), (0, ""), "{name}");
            let shown = std::fs::read_to_string(lab.path("shown")).unwrap();
            let about = format!("{} - ", name.trim_end_matches(".1"));
            assert!(shown.contains(&about), "{name}: {shown}");
        }
        expected.push(name);
    }
    expected.sort();
    let pages = std::fs::read_dir(lab.path("pages")).unwrap();
    let pages = pages.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = pages.collect();
    pages.sort();
    assert_eq!(pages, expected);
    if !has_man {
        skip("man with groff");
    }
}

#[test]
fn pages_are_the_same_each_time() {
    let lab = Lab::new();
    let ran = lab.run("hither man a && hither man b && hither man b && diff -r a b");
    assert_eq!((ran.code, ran.stdout(), &ran.stderr[..]), (0, "", ""));
}
