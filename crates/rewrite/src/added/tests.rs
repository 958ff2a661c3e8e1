//! Products that add to sums are equal to products and sums.
