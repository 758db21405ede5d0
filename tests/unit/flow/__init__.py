"""Tests of workflow definitions; a package, because other rooms have tests of the same names."""
