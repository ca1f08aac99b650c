"""What the original packages make of a WAV file of 16 kHz and 16 bits, as JSON: run with a Python that has them.

python original_listeners.py wake-word FILE [NETWORK]    # openWakeWord's `predict_clip`: a score per 80 ms
python original_listeners.py voice-activity FILE         # Silero VAD: a probability per 32 ms, and its timestamps
"""

from __future__ import annotations

import json
import sys
import wave
from typing import Any

import numpy as np


def wake_word(path: str, network: str, padding: int = 1) -> dict[str, Any]:
    import openwakeword

    model = openwakeword.Model([openwakeword.models[network]["model_path"]])
    return {"scores": [float(value) for each in model.predict_clip(path, padding=padding) for value in each.values()]}


def voice_activity(path: str) -> dict[str, Any]:
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    with wave.open(path) as reader:
        samples = np.frombuffer(reader.readframes(reader.getnframes()), "<i2")
    sound = torch.from_numpy(samples.astype(np.float32) / 32768)
    model = load_silero_vad(onnx=True)
    missing = -len(sound) % 512
    padded = torch.nn.functional.pad(sound, (0, missing))
    scores = [model(piece, 16000).item() for piece in padded.split(512)]
    return {"scores": scores, "speech": get_speech_timestamps(sound, model)}


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "voice-activity":
        print(json.dumps(voice_activity(*arguments)))
    else:
        print(json.dumps(wake_word(*arguments, padding=int(kind == "wake-word"))))
