//! The code that devices run: what each operation means on a processor.
