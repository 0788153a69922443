//! Names from an ELF file's symbol table, for what the debug information does not cover.
//!
//! Only functions with a size count, and only for addresses inside them: in a stripped library the
//! nearest exported symbol below an address is mostly that of another function. (`addr2line`'s own
//! lookup guesses the sizes of symbols that have none, which calls everything after a stripped
//! library's `_init` `_init`.)

use std::fs::File;
use std::path::Path;

use object::read::ReadCache;
use object::{Object, ObjectSymbol, ObjectSymbolTable, SymbolIndex, SymbolKind};

/// A function's extent and where its name is.
struct Function {
    start: u64,
    end: u64,
    symbol: SymbolIndex,
}

/// The mangled names of the functions that contain the given addresses. Only the table itself is
/// read, and of the names only those that are answers: the file may be gigabytes of debug
/// information.
pub(super) fn names(path: &Path, addresses: &[u64]) -> Vec<Option<String>> {
    find(path, addresses).unwrap_or_else(|| vec![None; addresses.len()])
}

fn find(path: &Path, addresses: &[u64]) -> Option<Vec<Option<String>>> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let table = file
        .symbol_table()
        .or_else(|| file.dynamic_symbol_table())?;
    let mut functions: Vec<Function> = table
        .symbols()
        .filter(|symbol| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0
        })
        .map(|symbol| Function {
            start: symbol.address(),
            end: symbol.address().saturating_add(symbol.size()),
            symbol: symbol.index(),
        })
        .collect();
    // Of several names for one function the first in the table wins.
    functions.sort_by_key(|function| (function.start, function.symbol.0));
    functions.dedup_by_key(|function| function.start);
    let name = |address: u64| {
        let after = functions.partition_point(|function| function.start <= address);
        let function = &functions[after.checked_sub(1)?];
        let symbol =
            (address < function.end).then(|| table.symbol_by_index(function.symbol).ok())??;
        symbol.name().ok().map(str::to_owned)
    };
    Some(addresses.iter().map(|&address| name(address)).collect())
}
