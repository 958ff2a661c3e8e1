//! Logs of the assembler.

use super::{Usage, usage};

#[test]
fn each_kernel_of_a_log_is_read() {
    let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'softmax_1' for 'sm_90a'
ptxas info    : Function properties for softmax_1
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'attention_2' for 'sm_90a'
ptxas info    : Function properties for attention_2
    96 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers
";
    let expected = [
        Usage { name: "softmax_1".to_owned(), registers: 30, spilled: 0, stack: 0 },
        Usage { name: "attention_2".to_owned(), registers: 255, spilled: 28, stack: 96 },
    ];
    assert_eq!(usage(log), expected);
}
