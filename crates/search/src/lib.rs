//! A space and prices to the cheapest plan, with a proof.
