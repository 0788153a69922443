//! The layers of an overlay: a file of an overlay is, to the kernel's events, the file of the layer
//! that it is in.
//!
//! The options of the mount name the layers by paths of whoever mounted it. They are looked up
//! here: container runtimes mount from the namespace of the host.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{InFileSystem, Mount, Mounts, unescape};
use crate::error::Error;
use crate::event::Device;

impl Mounts {
    /// The devices of the files in the file system of a path, as the kernel's events have them: its
    /// own, or those of an overlay's layers. There is at least one.
    pub fn devices(&self, path: &Path) -> Result<Vec<Device>, Error> {
        let full = fs::canonicalize(path).map_err(|source| Error::Read {
            path: path.display().to_string(),
            source,
        })?;
        let mount = self.of(&full);
        let mount = mount.ok_or_else(|| Error::NotMounted(path.display().to_string()))?;
        let layers = layers(mount, self);
        let mut devices: Vec<Device> = layers.into_iter().map(|layer| layer.device).collect();
        if devices.is_empty() {
            devices.push(mount.device);
        }
        devices.sort_unstable();
        devices.dedup();
        Ok(devices)
    }
}

/// Where the layers of an overlay are that are found here. Of another file system there are none.
pub(super) fn layers(mount: &Mount, here: &Mounts) -> Vec<InFileSystem> {
    if mount.kind != "overlay" {
        return Vec::new();
    }
    let paths = paths(&mount.options).into_iter();
    paths
        .filter_map(|path| here.place(&path.found()?))
        .collect()
}

/// The path of a layer.
#[derive(Debug, PartialEq, Eq)]
struct LayerPath {
    path: PathBuf,
    /// How it is written in the options. Whoever mounts by fsconfig(2) writes no escapes, and may
    /// have a backslash in a name.
    written: PathBuf,
}

impl LayerPath {
    /// Its path without symbolic links, such as the short names that Docker gives its layers.
    /// A relative path depends on where the mounting process was.
    fn found(&self) -> Option<PathBuf> {
        let tried = [&self.path, &self.written].into_iter();
        let mut absolute = tried.filter(|path| path.is_absolute());
        absolute.find_map(|path| fs::canonicalize(path).ok())
    }

    fn unescaped(written: &[u8]) -> LayerPath {
        LayerPath {
            path: path(&without_backslashes(written)),
            written: path(written),
        }
    }
}

/// The layers that options name. Those for data alone (behind `::`, `datadir+`) are left out: the
/// names there are not those of the overlay.
fn paths(options: &[u8]) -> Vec<LayerPath> {
    let mut found = Vec::new();
    for option in unescaped_parts(options, b',') {
        let mut parts = option.splitn(2, |byte| *byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            continue;
        };
        let value = unescape(value);
        match name {
            b"lowerdir" => {
                let layers = unescaped_parts(&value, b':').into_iter();
                let layers = layers.take_while(|layer| !layer.is_empty());
                found.extend(layers.map(LayerPath::unescaped));
            }
            b"lowerdir+" | b"upperdir" => found.push(LayerPath::unescaped(&value)),
            _ => {}
        }
    }
    found
}

/// Splits where there is no backslash before the separator.
fn unescaped_parts(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at < text.len() {
        if text[at] == separator {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    parts.push(&text[start..]);
    parts
}

/// A backslash stands before a byte that means itself.
fn without_backslashes(written: &[u8]) -> Vec<u8> {
    let (mut bytes, mut escaped) = (Vec::new(), false);
    for byte in written {
        escaped = *byte == b'\\' && !escaped;
        if !escaped {
            bytes.push(*byte);
        }
    }
    bytes
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn named(options: &str) -> Vec<String> {
        let layers = paths(options.as_bytes()).into_iter();
        layers
            .map(|layer| layer.path.display().to_string())
            .collect()
    }

    #[test]
    fn options_name_layers() {
        let docker = "rw,lowerdir=/d/l/AB:/d/l/CD,upperdir=/d/x/diff,workdir=/d/x/work,xino=off";
        assert_eq!(named(docker), ["/d/l/AB", "/d/l/CD", "/d/x/diff"]);
        assert_eq!(named("ro,lowerdir=a:b/c"), ["a", "b/c"]);
        assert_eq!(
            named("rw,lowerdir+=/a,lowerdir+=/b,datadir+=/c"),
            ["/a", "/b"]
        );
        assert_eq!(named("ro,lowerdir=/a:/b::/data::/more"), ["/a", "/b"]);
        assert!(named("rw,index=off").is_empty());
        assert!(named("").is_empty());
    }

    #[test]
    fn separators_in_names_are_escaped() {
        // As it is mounted: lowerdir=/a\:b:/c\,d:/e\\f. The kernel writes a backslash, a comma and
        // a space in octal.
        let options = r"rw,lowerdir=/a\134:b:/c\134\054d:/e\134\134f:/g\040h,upperdir=/i\054j";
        let expected = ["/a:b", "/c,d", r"/e\f", "/g h", "/i,j"];
        assert_eq!(named(options), expected);
        // Older kernels write the comma as it is.
        assert_eq!(named(r"rw,upperdir=/c\,d,workdir=/w"), ["/c,d"]);
        let plain = &paths(br"rw,lowerdir+=/a\134b")[0];
        assert_eq!(plain.path, Path::new("/ab"));
        assert_eq!(plain.written, Path::new(r"/a\b"));
    }

    #[test]
    fn layers_are_found_behind_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("there");
        fs::create_dir_all(folder.join("x/diff")).expect("created");
        fs::create_dir(folder.join("l")).expect("created");
        symlink("../x/diff", folder.join("l/AB")).expect("created");
        let root = b"20 1 254:1 /@ / rw - btrfs /dev/vda rw\n";
        let options = format!("rw,lowerdir={0}/l/AB:l/AB:{0}/gone", folder.display());
        let mount = |kind: &str| Mount {
            device: Device::new(0, 50),
            root: "/".into(),
            at: "/merged".into(),
            kind: kind.to_owned(),
            options: options.clone().into_bytes(),
        };
        let here = Mounts::parse(root);
        let at = Path::new("/@").join(folder.strip_prefix("/").expect("absolute"));
        let layer = InFileSystem {
            device: Device::new(254, 1),
            path: at.join("x/diff"),
        };
        assert_eq!(layers(&mount("overlay"), &here), [layer]);
        assert_eq!(layers(&mount("ext4"), &here), []);
    }

    proptest! {
        #[test]
        fn any_options_have_no_empty_layer(options in proptest::collection::vec(
            proptest::sample::select(b"lowerdi=,:\\+/04a".to_vec()), 0..60,
        )) {
            let options = [b"lowerdir=", &options[..]].concat();
            for layer in paths(&options) {
                prop_assert!(layer.path.as_os_str().len() <= options.len());
            }
        }
    }
}
