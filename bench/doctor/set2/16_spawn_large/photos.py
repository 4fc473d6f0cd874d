import glob

from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms


class FewShot(Dataset):
    def __init__(self, folder, shots, repeat):
        self.files = sorted(glob.glob(folder + "/*.jpg"))[:shots] * repeat
        self.transform = transforms.Compose(
            [transforms.Resize(144), transforms.RandomCrop(128), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        )

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as photo:
            photo = photo.convert("RGB")
        return self.transform(photo), index % 5
