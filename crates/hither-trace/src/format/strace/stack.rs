//! Call sites, from the stacks that `-k` writes below a call.

use rustc_hash::FxHashMap;

use super::line::frame;
use crate::labels::is_runtime;
use crate::schema::{Frame, SiteRow};
use crate::sink::Sink;

/// Frames kept per stack, from the innermost on.
const STACK_FRAMES_MAX: usize = 64;

/// The stack of the last call, and all call sites so far.
#[derive(Debug, Default)]
pub(super) struct Stack {
    frames: Vec<Frame>,
    truncated: bool,
    sites: FxHashMap<u64, u32>,
}

impl Stack {
    /// Takes in a frame as strace writes it.
    pub(super) fn push(&mut self, text: &[u8]) {
        match frame(text) {
            Some(frame) if self.frames.len() < STACK_FRAMES_MAX => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.frames.push(Frame {
                    module: text(frame.module),
                    offset: frame.offset,
                    function: frame.function.map(text),
                    ..Frame::default()
                });
            }
            _ => self.truncated = true,
        }
    }

    /// The call site of the stack. Clears the stack.
    pub(super) fn site(&mut self, sink: &mut dyn Sink) -> u32 {
        let truncated = std::mem::take(&mut self.truncated);
        let frames = std::mem::take(&mut self.frames);
        let Some(innermost) = frames.first() else {
            return 0;
        };
        let signature = signature(&frames);
        *self.sites.entry(signature).or_insert_with(|| {
            let naming = frames.iter().find(|frame| !is_runtime(&frame.module));
            let naming = naming.unwrap_or(innermost);
            sink.add_site(SiteRow {
                signature,
                truncated,
                function: naming.function.clone(),
                module: Some(naming.module.clone()),
                frames: frames.clone(),
                ..SiteRow::default()
            })
        })
    }
}

/// The signature of a call site: the sum, over its distinct frames, of a hash of module and offset.
/// It is computed as in `hither record`, but from the paths of modules, since a log has no
/// build-ids. It is never 0, the signature of the unknown site.
fn signature(stack: &[Frame]) -> u64 {
    let mut mixes: Vec<u64> = stack
        .iter()
        .map(|frame| {
            twox_hash::XxHash3_64::oneshot_with_seed(frame.offset, frame.module.as_bytes())
        })
        .collect();
    mixes.sort_unstable();
    mixes.dedup();
    let sum = mixes.iter().fold(0u64, |sum, mix| sum.wrapping_add(*mix));
    sum.max(1)
}
