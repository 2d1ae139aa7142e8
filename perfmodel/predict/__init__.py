"""Operations, a machine, layouts and coefficients become a step time and a curve."""
