"""What Ultralytics' own predictors make of outputs; run by a Python that has the package, with nothing of edgedeploy.

Each line of standard input has the paths of a case and of its result, with a tab between; a line on standard output
says that the result is there. A case has `task`, `names`, `end2end`, `agnostic`, `image` (uint8, B G R), `network`
(height and width) and the outputs `output0`, perhaps `output1`.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np


def main() -> None:
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
    main()
