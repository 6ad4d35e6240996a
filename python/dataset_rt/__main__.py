"""`python -m dataset_rt`: the command line where its script is not on the path."""

from dataset_rt.cli import main

if __name__ == "__main__":
    main()
