export PYTHONPATH=. PYTHONUNBUFFERED=1
export TORCH_EXTENSIONS_DIR=/tmp/ext
ls out/s13/h[23]/*/*.py | xargs -P 16 -I{} timeout 200 python -c "import runpy,sys; runpy.run_path('{}')" > /dev/null 2> $OUT/build.txt; date +%s
for f in 91/w72_1carrier 49/two_teams_rows2 34/two_teams_sets4 3/two_teams_laps; do timeout 60 env CUDA_LAUNCH_BLOCKING=1 python out/s13/dbg.py out/s13/h3/$f.py 2>&1 | tail -1; done
timeout 60 compute-sanitizer --tool memcheck --print-limit 3 python out/s13/dbg.py out/s13/h3/91/w72_1carrier.py 2>&1 | grep -v "Host Frame" | head -40
timeout 60 compute-sanitizer --tool memcheck --print-limit 3 python out/s13/dbg.py out/s13/h3/34/two_teams_sets4.py 2>&1 | grep -v "Host Frame" | head -30
timeout 150 python out/s13/abmany.py out/s13/h2 out/kb/level2
