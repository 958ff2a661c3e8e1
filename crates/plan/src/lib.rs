//! The execution plan: its JSON form, its independent checker, differences.
