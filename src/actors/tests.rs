//! Tests of the actors together.

mod simulation;
