from selector.families.contraction.tiling import Shape, Tiling
__all__=["Shape","Tiling"]
