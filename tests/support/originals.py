"""What the original packages make of the same files: a program for a Python that has them, with nothing of edgedeploy.

python originals.py mediapipe DEMO FILM FILE...: as JSON, a list for each file of the results in it, each an object with
`points` (x, y and depth in pixels), `visibility` and `label`. FILM is 1 if the files follow each other in time.

Of a WAV file of 16 kHz and 16 bits, as JSON:
python originals.py wake-word FILE NETWORK    # openWakeWord's `predict_clip`: a score per 80 ms
python originals.py wake-word-at-once FILE NETWORK    # without silence around it
python originals.py voice-activity FILE    # Silero VAD: a probability per 32 ms, and its timestamps

python originals.py ultralytics: each line of standard input has the paths of a case and of its result, with a tab
between; a line on standard output says that the result is there. A case has `task`, `names`, `end2end`, `agnostic`,
`image` (uint8, B G R), `network` (height and width) and the outputs `output0`, perhaps `output1`.
"""

from __future__ import annotations

import json
import sys
import wave
from types import SimpleNamespace
from typing import Any

import numpy as np


def solution(demo: str, film: bool) -> Any:
    """The solution of a demo, and how its results are called."""
    import mediapipe

    solutions = mediapipe.solutions
    if demo == "hands":
        return solutions.hands.Hands(static_image_mode=not film, max_num_hands=2 if film else 4), "multi_hand_landmarks"
    if demo == "pose":
        options = {"static_image_mode": not film, "smooth_landmarks": False}
        return solutions.pose.Pose(**options), "pose_landmarks"
    options = {"static_image_mode": not film, "refine_landmarks": demo == "face-mesh-attention"}
    return solutions.face_mesh.FaceMesh(max_num_faces=1 if film else 4, **options), "multi_face_landmarks"


def mediapipe_results(demo: str, film: bool, files: list[str]) -> list[list[dict[str, Any]]]:
    import cv2

    found, network = [], None
    for file in files:
        if network is None or not film:
            network, name = solution(demo, film)
        image = cv2.cvtColor(cv2.imread(file), cv2.COLOR_BGR2RGB)
        height, width = image.shape[:2]
        seen = network.process(image)
        sets = getattr(seen, name) or []
        labels = [each.classification[0].label for each in getattr(seen, "multi_handedness", None) or []]
        found.append(
            [
                {
                    "points": [[each.x * width, each.y * height, each.z * width] for each in points.landmark],
                    "visibility": [each.visibility for each in points.landmark],
                    "label": labels[index] if labels else None,
                }
                for index, points in enumerate([sets] if demo == "pose" and sets else sets)
            ]
        )
    return found


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


def ultralytics() -> None:
    for line in sys.stdin:
        case, result = line.rstrip("\n").split("\t")
        np.savez(result, **results_of(np.load(case)))
        print("done", flush=True)


def results_of(case: Any) -> dict[str, np.ndarray]:
    import torch
    from ultralytics.models.yolo import classify, detect, obb, pose, segment, semantic

    predictors = {
        "detect": detect.DetectionPredictor,
        "segment": segment.SegmentationPredictor,
        "pose": pose.PosePredictor,
        "obb": obb.OBBPredictor,
        "classify": classify.ClassificationPredictor,
        "semantic": semantic.SemanticSegmentationPredictor,
    }
    task, network, image = str(case["task"]), tuple(case["network"].tolist()), case["image"]
    overrides = {"conf": 0.25, "retina_masks": True, "agnostic_nms": bool(case["agnostic"]), "save": False}
    predictor: Any = predictors[task](overrides=overrides)
    names = dict(enumerate(case["names"].tolist()))
    predictor.model = SimpleNamespace(
        names=names,
        end2end=bool(case["end2end"]),
        kpt_shape=[17, 3],
        format="onnx",
        stride=32,
        fp16=False,
        device="cpu",
    )
    predictor.device, predictor.imgsz, predictor.batch = torch.device("cpu"), network, [["image.jpg"]]
    result: dict[str, np.ndarray] = {}
    if task == "classify":
        from torchvision.transforms import Compose
        from ultralytics.data.augment import classify_transforms

        predictor.transforms = classify_transforms(network)
        transforms = predictor.transforms.transforms
        predictor.host_transforms, predictor.device_transform = Compose(transforms[:2]), transforms[-1]
    prepared = predictor.preprocess([image])
    result["input"] = prepared.numpy()
    outputs = [torch.from_numpy(case[name]) for name in ("output0", "output1") if name in case]
    [found] = predictor.postprocess(outputs if len(outputs) > 1 else outputs[0], prepared, [image])
    if found.boxes is not None:
        result["boxes"] = found.boxes.data.numpy()
    if found.masks is not None:
        result["masks"] = found.masks.data.numpy().astype(bool)
    if found.keypoints is not None:
        result["keypoints"] = found.keypoints.data.numpy()
    if found.obb is not None:
        result["turned"] = found.obb.data.numpy()
        result["corners"] = found.obb.xyxyxyxy.numpy()
    if found.probs is not None:
        result["top5"] = np.array(found.probs.top5)
    if getattr(found, "semantic_mask", None) is not None:
        result["classes"] = np.asarray(found.semantic_mask.data)
    return result


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    if program == "mediapipe":
        print(json.dumps(mediapipe_results(arguments[0], arguments[1] == "1", arguments[2:])))
    elif program == "ultralytics":
        ultralytics()
    elif program == "voice-activity":
        print(json.dumps(voice_activity(*arguments)))
    else:
        print(json.dumps(wake_word(*arguments, padding=int(program == "wake-word"))))
