//! The interpreter: what it computes, and that it finds what kernels do wrong.

mod faults; // each thing that a kernel may not do
mod lanes; // lanes that diverge, meet and hand values on
mod rounding; // numbers as a GPU rounds them
mod text; // programs that are not known

use crate::{Access, Counts, Fault, Grid, Memory, Module, What, launch};

/// A buffer of a test.
enum Given<'a> {
    /// Only read.
    Read(&'a [u8]),
    /// So many bytes that nobody has written.
    Room(usize),
}

/// A kernel with these instructions, given the addresses of so many buffers in `%rd0` and after.
fn program(buffers: usize, body: &str) -> String {
    let parameters: Vec<String> = (0..buffers).map(|it| format!("\t.param .u64 tried_param_{it}")).collect();
    let loads: String =
        (0..buffers).map(|it| format!("\tld.param.u64 %rd{it}, [tried_param_{it}];\n")).collect();
    format!(
        ".version 9.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 t_arena[];\n\
         .visible .entry tried(\n{}\n)\n.maxntid 128, 1, 1\n{{\n\t.reg .pred %p<9>;\n\t.reg .b16 %rs<9>;\n\
         \t.reg .b32 %r<99>;\n\t.reg .f32 %f<99>;\n\t.reg .b64 %rd<99>;\n{loads}\
         \tmov.u32 %r0, %tid.x;\n\tcvt.u64.u32 %rd90, %r0;\n\tshl.b64 %rd91, %rd90, 2;\n{body}\tret;\n}}\n",
        parameters.join(",\n")
    )
}

/// What a kernel leaves in its buffers.
fn run(grid: (u64, u32), buffers: &[Given<'_>], body: &str) -> Result<(Vec<Vec<u8>>, Counts), Fault> {
    let text = program(buffers.len(), body);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let mut memory = Memory::new();
    let give = |memory: &mut Memory, (number, it): (usize, &Given<'_>)| {
        let name = format!("buffer {number}");
        match it {
            Given::Read(bytes) => memory.give(&name, bytes, Access::Read),
            Given::Room(bytes) => memory.room(&name, *bytes),
        }
    };
    let places: Vec<u64> = buffers.iter().enumerate().map(|it| give(&mut memory, it)).collect();
    let grid = Grid { blocks: grid.0, threads: grid.1, shared: 512 };
    let counts = launch(module.kernel("tried").unwrap(), &mut memory, grid, &places)?;
    Ok((places.iter().map(|it| memory.bytes(*it).unwrap().to_vec()).collect(), counts))
}

/// What a kernel does wrong.
fn fault(grid: (u64, u32), buffers: &[Given<'_>], body: &str) -> Fault {
    run(grid, buffers, body).map(|it| it.1).expect_err("the kernel does something wrong")
}

/// Numbers of 32 bits in a buffer.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect()
}
