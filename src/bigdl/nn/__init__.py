"""BigDL's layers, criterions and initialization methods, over torch."""
