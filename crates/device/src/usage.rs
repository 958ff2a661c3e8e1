//! What compiled kernels need of a device, as the assembler says.

/// What a kernel needs of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The entry.
    pub name: String,
    /// Registers of a thread.
    pub registers: u64,
    /// Registers that did not fit and are written to memory (bytes).
    pub spilled: u64,
    /// Memory of a thread, for arrays that are not in registers (bytes).
    pub stack: u64,
}

/// What the assembler's log says of each kernel, in its order.
///
/// Source: the output of `ptxas -v`: for each entry a line `Compiling entry function 'NAME'`, then
/// `N bytes stack frame, N bytes spill stores, N bytes spill loads` and `Used N registers`.
pub fn usage(log: &str) -> Vec<Usage> {
    let mut all: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            all.push(Usage { name, registers: 0, spilled: 0, stack: 0 });
        }
        let Some(last) = all.last_mut() else { continue };
        if let Some(bytes) = number_before(line, " bytes stack frame") {
            last.stack = bytes;
        }
        for what in [" bytes spill stores", " bytes spill loads"] {
            last.spilled += number_before(line, what).unwrap_or(0);
        }
        if let Some((_, rest)) = line.split_once("Used ") {
            last.registers = number_before(rest, " registers").unwrap_or(0);
        }
    }
    all
}

/// The number that stands right before a text in a line.
fn number_before(line: &str, text: &str) -> Option<u64> {
    let (before, _) = line.split_once(text)?;
    before.rsplit(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests;
