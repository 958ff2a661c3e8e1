//! Which communicators are made.
