export PYTHONPATH=. PYTHONUNBUFFERED=1
K=out/kb/level1
timeout 150 python out/s12/ab.py $K/40_LayerNorm.py out/s13/ln/*.py
