"""k-means and PCA on shards.

Project 1,792 images of digits to two components and cluster them, with the images sharded
over eight devices.

python examples/gallery/kmeans_pca.py
"""

# %%
# Each of eight devices holds 224 of the images, as rows of 64 pixels. The images are in a
# checkout of weft.
from pathlib import Path

import numpy as np

import weft
import weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
folder = Path(weft.__file__).parents[1] / "examples" / "data"
with np.load(folder / "digits.npz") as file:
    images = file["images"].reshape(-1, 64)[:1792].astype(np.float32) / 16
    labels = file["labels"][:1792]

mesh = weft.make_mesh((8,), ("row",))
images = weft.device_put(images, NamedSharding(mesh, P("row")))
labels = weft.device_put(labels, NamedSharding(mesh, P("row")))


# %%
# PCA: the covariance is a sum over all rows, so each device adds its part and one `psum`
# adds the parts. The eigenvectors are computed on every device.
@weft.jit
def pca(rows):
    centered = rows - rows.mean(0)
    variances, directions = wnp.linalg.eigh(centered.T @ centered / len(rows))
    best = directions[:, ::-1]
    best = best * wnp.sign(best.sum(0))  # eigenvectors are known up to their sign
    return centered @ best[:, :16], variances[::-1] / variances.sum()


features, shares = pca(images)
print("features", features.shape, features.sharding.spec)
print(f"16 components explain {shares[:16].sum():.0%} of the variance")
print("collectives of PCA", weft.explain(pca, images).counts)


# %%
# k-means: assign each row to the closest center, then average. A one-hot matrix makes the
# averages a product.
@weft.jit
def kmeans(rows, centers):
    def assign(centers):
        return ((rows[:, None, :] - centers) ** 2).sum(-1).argmin(1)

    def step(centers, _):
        members = weft.nn.one_hot(assign(centers), len(centers))
        counts = wnp.maximum(members.sum(0), 1)
        return members.T @ rows / counts[:, None], None

    centers, _ = weft.lax.scan(step, centers, length=50)
    return centers, assign(centers)


centers, clusters = kmeans(features, features[:20])
print("clusters", clusters.shape, clusters.sharding.spec)
print("collectives of k-means", weft.explain(kmeans, features, features[:20]).counts)

# %%
# The share of images that have the most frequent digit of their cluster.
counts = weft.nn.one_hot(clusters, 20).T @ weft.nn.one_hot(labels, 10)
print(f"purity {counts.max(1).sum() / len(labels):.0%}")
