//! What each architecture recognises of code that was made at run time.

/// How code that was made at run time returns to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// It leaves out a word, then returns to the address that follows.
    SkipsWord,
    /// It takes the caller's frame pointer, then returns to the address that follows.
    RestoresFramePointer,
}
