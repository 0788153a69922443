//! Files of a mount, read through the cache of the node that serves it, past the kernel.

use std::io;
use std::path::{Path, PathBuf};

use hither_client::File;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes of a long read after which Ctrl-C is looked for.
const CHUNK_BYTES: usize = 8 << 20;

/// An open file, which keeps the version that it had then.
#[pyclass(frozen, module = "hither._hither")]
pub(crate) struct Reader {
    file: File,
    path: PathBuf,
    /// The process that opened it. A child that was forked would share the connection, and could
    /// get the bytes that its parent asked for.
    process: u32,
}

#[pymethods]
impl Reader {
    /// Bytes of the file.
    #[getter]
    fn size(&self) -> u64 {
        self.file.len()
    }

    /// The bytes from `offset` on: `length` of them, or those up to the end of the file.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if std::process::id() != self.process {
            let what = "another process opened this file: open it again in this one";
            return Err(os_error(py, &io::Error::other(what), &self.path));
        }
        let length = (self.file.len().saturating_sub(offset)).min(length as u64) as usize;
        PyBytes::new_with(py, length, |data| {
            let offsets = (offset..).step_by(CHUNK_BYTES);
            for (chunk, offset) in data.chunks_mut(CHUNK_BYTES).zip(offsets) {
                py.detach(|| self.file.read_at(chunk, offset))
                    .map_err(|error| os_error(py, &error, &self.path))?;
                py.check_signals()?;
            }
            Ok(())
        })
    }
}

/// Opens a file of a mount.
#[pyfunction]
pub(crate) fn open_reader(py: Python<'_>, path: PathBuf) -> PyResult<Reader> {
    let file = py.detach(|| hither_client::open(&path));
    Ok(Reader {
        file: file.map_err(|error| os_error(py, &error, &path))?,
        path,
        process: std::process::id(),
    })
}

/// Raises `OSError` unless the path is there and in a mount of hither.
#[pyfunction]
pub(crate) fn require_mount(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let socket = py.detach(|| hither_client::socket_of(&path));
    socket
        .map(drop)
        .map_err(|error| os_error(py, &error, &path))
}

/// `OSError`, or the class below it that the number stands for, with the path.
fn os_error(py: Python<'_>, error: &io::Error, path: &Path) -> PyErr {
    match number_and_text(py, error) {
        Ok((number, text)) => PyOSError::new_err((number, text, path.as_os_str().to_owned())),
        Err(error) => error,
    }
}

/// The client's errors have a text and a kind, and no number any more; those of the system have a
/// number, and `os` the text without it.
fn number_and_text(py: Python<'_>, error: &io::Error) -> PyResult<(i32, String)> {
    if let Some(number) = error.raw_os_error() {
        let text = py.import("os")?.call_method1("strerror", (number,))?;
        return Ok((number, text.extract()?));
    }
    let name = match error.kind() {
        io::ErrorKind::ConnectionAborted => "ECONNABORTED",
        io::ErrorKind::ConnectionRefused => "ECONNREFUSED",
        io::ErrorKind::InvalidFilename => "ENAMETOOLONG",
        io::ErrorKind::IsADirectory => "EISDIR",
        io::ErrorKind::NotADirectory => "ENOTDIR",
        io::ErrorKind::NotFound => "ENOENT",
        io::ErrorKind::PermissionDenied => "EACCES",
        io::ErrorKind::StaleNetworkFileHandle => "ESTALE",
        io::ErrorKind::Unsupported => "EOPNOTSUPP",
        _ => "EIO",
    };
    let number = py.import("errno")?.getattr(name)?.extract()?;
    Ok((number, error.to_string()))
}
