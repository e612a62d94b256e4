"""Train a policy across clients that keep their logs: python scripts/run_fed.py --algo sac"""

from fed.cli import guarded, main

if __name__ == "__main__":
    guarded(lambda: main("train", "python scripts/run_fed.py", "Federated offline RL on split logs."))
