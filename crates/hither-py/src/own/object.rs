//! An object of the user's class, behind an entry of a registry.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::errors::exception;
use crate::work::Work;

/// The entries of classes, by the class. They are for ever, as those of the registries are, and so
/// are their classes: an address here is of one class.
pub(super) type Entries<E> = Mutex<Option<HashMap<usize, &'static E>>>;

/// The class that derives from the class `base` of the package `hither`.
pub(super) fn derived<'a, 'py>(
    class: &'a Bound<'py, PyAny>,
    base: &str,
) -> PyResult<&'a Bound<'py, PyType>> {
    let base_class = class.py().import("hither")?.getattr(base)?;
    let class = class.cast::<PyType>().ok();
    let class = class.filter(|class| class.is_subclass(&base_class).unwrap_or(false));
    let problem = || format!("a name, or a class that derives from hither.{base}, is needed");
    class.ok_or_else(|| PyTypeError::new_err(problem()))
}

/// The entry of a class.
pub(super) fn entry_of<E>(
    entries: &Entries<E>,
    class: &Bound<'_, PyType>,
    make: impl FnOnce(&'static str, Py<PyType>) -> E,
) -> PyResult<&'static E> {
    let known = || entries.lock().unwrap_or_else(PoisonError::into_inner);
    let address = class.as_ptr().addr();
    if let Some(&entry) = known().get_or_insert_default().get(&address) {
        return Ok(entry);
    }
    // Not while the lock is held: this may let another thread of Python run, which waits for it.
    let name = Box::leak(class.name()?.to_string().into_boxed_str());
    let entry = Box::leak(Box::new(make(name, class.clone().unbind())));
    Ok(known()
        .get_or_insert_default()
        .entry(address)
        .or_insert(entry))
}

/// Whether a class leaves a method to the class `base` of the package.
pub(super) fn leaves(class: &Bound<'_, PyType>, base: &str, method: &str) -> PyResult<bool> {
    let base = class.py().import("hither")?.getattr(base)?;
    Ok(class.getattr(method)?.is(&base.getattr(method)?))
}

/// The methods of an object of the user, or none once one of them has failed.
pub(super) struct Own {
    name: &'static str,
    methods: Vec<Option<Py<PyAny>>>,
    failed: bool,
    work: Work,
}

impl Own {
    /// Makes an object of `class`. Of its `methods`, by index, it has those that it does not leave
    /// to the class `base` of the package; that has an answer for all but `victim`.
    pub(super) fn new(
        name: &'static str,
        class: &Py<PyType>,
        base: &str,
        methods: &[&str],
        argument: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>,
    ) -> Own {
        let mut own = Own {
            name,
            methods: methods.iter().map(|_| None).collect(),
            failed: false,
            work: Work::current(),
        };
        let found = Python::attach(|py| {
            let class = class.bind(py);
            let object = class.call1((argument(py)?,))?;
            let method = |name: &&str| {
                Ok(if *name != "victim" && leaves(class, base, name)? {
                    None
                } else {
                    Some(object.getattr(*name)?.unbind())
                })
            };
            methods.iter().map(method).collect::<PyResult<Vec<_>>>()
        });
        if let Some(found) = own.kept(found) {
            own.methods = found;
        }
        own
    }

    pub(super) fn has(&self, method: usize) -> bool {
        self.methods[method].is_some()
    }

    /// Calls a method and reads its answer. `None`: there is no such method, or one has failed.
    pub(super) fn ask<T>(
        &mut self,
        method: usize,
        arguments: impl for<'py> PyCallArgs<'py>,
        read: impl FnOnce(Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T> {
        if self.failed {
            return None;
        }
        let method = self.methods[method].as_ref()?;
        let answer = Python::attach(|py| read(method.bind(py).call1(arguments)?));
        self.kept(answer)
    }

    /// The value; or nothing, and the error ends the run.
    fn kept<T>(&mut self, result: PyResult<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failed = true;
                self.work.fail(error);
                None
            }
        }
    }

    /// The error of a policy that answered something impossible.
    pub(super) fn refuse(&mut self, text: &str) {
        let name = self.name;
        let error = Python::attach(|py| {
            Err::<(), _>(exception(py, "PolicyError", &format!("{name}: {text}")))
        });
        self.kept(error);
    }
}

/// What a policy has answered, for an error: as Python shows it.
pub(super) fn shown(answer: &Bound<'_, PyAny>) -> String {
    let shown = answer.repr().map(|text| text.to_string());
    shown.unwrap_or_else(|_| format!("a {}", answer.get_type()))
}
