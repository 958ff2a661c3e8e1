//! Products as the library has them: by columns, with one distance between columns.

use std::rc::Rc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as Of,
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t as Attribute, cudaDataType_t as Data,
};
use kernels::cuda::{Matrix, MatrixProduct};
use planner_ir::DType;

use super::library::Library;
use crate::error::DeviceError;

/// The element types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Of both operands.
    operands: DType,
    result: DType,
}

impl Numbers {
    /// Those that the library takes: of the operands, of the result.
    pub(super) fn of([operands, result]: [DType; 2]) -> Option<Self> {
        let fits = operands == result || operands.is_half() && result == DType::F32;
        (operands.is_float() && fits).then_some(Self { operands, result })
    }

    fn data(dtype: DType) -> Data {
        match dtype {
            DType::F64 => Data::CUDA_R_64F,
            DType::F16 => Data::CUDA_R_16F,
            DType::BF16 => Data::CUDA_R_16BF,
            _ => Data::CUDA_R_32F,
        }
    }

    /// What sums are computed in: f32, or of f64 that.
    fn sums(self) -> (Compute, Data) {
        match self.operands {
            DType::F64 => (Compute::CUBLAS_COMPUTE_64F, Data::CUDA_R_64F),
            _ => (Compute::CUBLAS_COMPUTE_32F, Data::CUDA_R_32F),
        }
    }

    /// One, as factors are given.
    pub(super) fn one(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        match self.operands {
            DType::F64 => bytes = 1.0_f64.to_ne_bytes(),
            _ => bytes[..4].copy_from_slice(&1.0_f32.to_ne_bytes()),
        }
        bytes
    }

    /// Zero.
    pub(super) fn zero(self) -> [u8; 8] {
        [0; 8]
    }
}

/// A matrix as it is stored: by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    rows: u64,
    columns: u64,
    /// How far a column is from the one before it (elements).
    distance: i64,
    /// Whether what is stored is the transpose.
    transposed: bool,
    /// How far a matrix is from the one before it (elements).
    batch: i64,
}

/// A product with the operands as they are stored, and the result, which is not transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sides {
    /// The first operand, the second one, the result.
    stored: [Stored; 3],
    batches: u64,
    /// Whether the transpose of the result is computed, so that the right operand is the first.
    turned: bool,
}

impl Sides {
    /// Those of a product, if rows or columns of each matrix lie together.
    pub(super) fn of(product: &MatrixProduct) -> Option<Self> {
        let MatrixProduct { batches, rows, columns, length, left, right, result } = *product;
        let turn = |it: Matrix| Matrix { row: it.column, column: it.row, ..it };
        let plain = stored(result, rows, columns).filter(|it| !it.transposed);
        if let Some(made) = plain {
            let operands = [stored(left, rows, length)?, stored(right, length, columns)?];
            return Some(Self { stored: [operands[0], operands[1], made], batches, turned: false });
        }
        let made = stored(turn(result), columns, rows).filter(|it| !it.transposed)?;
        let operands = [stored(turn(right), columns, length)?, stored(turn(left), length, rows)?];
        Some(Self { stored: [operands[0], operands[1], made], batches, turned: true })
    }
}

/// How a matrix is stored by columns, itself or its transpose.
fn stored(matrix: Matrix, rows: u64, columns: u64) -> Option<Stored> {
    let near = |stride: Option<i64>| stride.is_none_or(|it| it == 1);
    let least = |extent: u64| i64::try_from(extent.max(1)).unwrap_or(i64::MAX);
    let of = |rows: u64, columns: u64, stride: Option<i64>, transposed: bool| {
        let distance = stride.unwrap_or_else(|| least(rows));
        let fits = distance >= least(rows);
        fits.then_some(Stored { rows, columns, distance, transposed, batch: matrix.batch })
    };
    let itself = || of(rows, columns, matrix.column, false);
    let transpose = || of(columns, rows, matrix.row, true);
    match (near(matrix.row), near(matrix.column)) {
        (true, _) => itself().or_else(|| near(matrix.column).then(transpose).flatten()),
        (false, true) => transpose(),
        (false, false) => None,
    }
}

/// A product described to the library.
pub(super) struct Described {
    library: Rc<Library>,
    pub(super) operation: cublasLtMatmulDesc_t,
    pub(super) layouts: [cublasLtMatrixLayout_t; 3],
    pub(super) turned: bool,
}

impl Described {
    pub(super) fn new(library: &Rc<Library>, sides: &Sides, numbers: Numbers) -> Result<Self, DeviceError> {
        let (compute, scale) = numbers.sums();
        let operation = library.operation(compute, scale)?;
        let none = std::ptr::null_mut();
        let mut described =
            Self { library: Rc::clone(library), operation, layouts: [none; 3], turned: sides.turned };
        let turns = [Of::CUBLASLT_MATMUL_DESC_TRANSA, Of::CUBLASLT_MATMUL_DESC_TRANSB];
        for (which, side) in turns.into_iter().zip(&sides.stored) {
            library.set_operation(operation, which, &i32::from(side.transposed).to_ne_bytes())?;
        }
        let dtypes = [numbers.operands, numbers.operands, numbers.result].map(Numbers::data);
        for (number, (side, data)) in sides.stored.iter().zip(dtypes).enumerate() {
            let layout = library.layout(data, [side.rows, side.columns], side.distance)?;
            described.layouts[number] = layout;
            if sides.batches > 1 {
                let count = i32::try_from(sides.batches).unwrap_or(i32::MAX).to_ne_bytes();
                library.set_layout(layout, Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count)?;
                let offset = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
                library.set_layout(layout, offset, &side.batch.to_ne_bytes())?;
            }
        }
        Ok(described)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        for &layout in self.layouts.iter().filter(|it| !it.is_null()) {
            self.library.forget_layout(layout);
        }
        self.library.forget_operation(self.operation);
    }
}
