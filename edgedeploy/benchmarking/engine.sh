# shellcheck shell=sh
# Runs engine_program.py in the folder $1. $2: PYTHONPATH; $3: the engine; $4: the threads; $5: the network's file. The
# engine's messages go to a file, whose last line is printed when it has ended.
cd -- "$1" || exit
PYTHONPATH="$2" PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 ORT_DISABLE_TELEMETRY=1 OMP_NUM_THREADS="$4" \
    python3 ../engine_program.py "$3" "$5" inputs.npz outputs.npz names.json "$4" 2>log.txt
echo "ended $?"
tail -n 1 log.txt
