//! The parameters of policies and generators, as text.

use hither_core::registry::Param;

/// A line for each parameter: name, default, effect, allowed values.
pub(crate) fn parameter_lines(params: &[Param]) -> String {
    let line = |param: &Param| {
        format!(
            "    {}={}  {} ({})\n",
            param.name,
            param.kind.default(),
            param.doc,
            param.kind.allowed()
        )
    };
    params.iter().map(line).collect()
}
