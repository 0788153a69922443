"""Programs of strangers.py that are libraries for Python. Each prints something that depends on
what it read.

    python3 strangers_readers.py duckdb TABLE.csv...
    python3 strangers_readers.py numpy FOLDER TIMES
    python3 strangers_readers.py lmdb DATABASE READS
"""

import random
import sys
import zlib
from pathlib import Path


def duckdb(*tables: str) -> None:
    """Imports tables of CSV into Parquet, and queries both."""
    import duckdb

    parquet = Path(f"{tables[0]}.parquet")
    with duckdb.connect() as database:
        database.execute("set threads = 2")
        for table in tables:
            query = (
                "select g, count(*), sum(i), sum(length(word)) "
                f"from read_csv('{table}') group by g order by g"
            )
            print(database.execute(query).fetchall())
        query = f"copy (from read_csv('{tables[0]}')) to '{parquet}' (format parquet)"
        database.execute(query)
        for digit in range(5):
            query = f"select count(*), sum(i) from '{parquet}' where word like '%{digit}{digit}%'"
            print(database.execute(query).fetchall())
    parquet.unlink()


def numpy(folder: str, times: str) -> None:
    """Loads all arrays of a folder, in another order each time."""
    import numpy

    names, source, total = sorted(Path(folder).iterdir()), random.Random(1), 0
    for _ in range(int(times)):
        source.shuffle(names)
        for name in names:
            total += int(numpy.load(name).sum())
    print(total)


def lmdb(database: str, reads: str) -> None:
    """Walks through a database and looks keys up."""
    import lmdb

    total, source = 0, random.Random(1)
    with lmdb.open(database, readonly=True, lock=False) as environment:
        with environment.begin() as transaction:
            entries = environment.stat()["entries"]
            for key, value in transaction.cursor():
                total = zlib.adler32(value, zlib.adler32(key, total))
            for _ in range(int(reads)):
                key = f"{source.randrange(entries):08}".encode()
                total = zlib.adler32(transaction.get(key), total)
    print(total)


def lmdb_make(database: str, entries: str) -> None:
    """Makes such a database."""
    import lmdb

    source = random.Random(1)
    with lmdb.open(database, map_size=1 << 34) as environment:
        with environment.begin(write=True) as transaction:
            for number in range(int(entries)):
                transaction.put(f"{number:08}".encode(), source.randbytes(400))


def numpy_make(folder: str, count: str) -> None:
    """Makes a folder of arrays of 1 MiB."""
    import numpy

    source = numpy.random.default_rng(1)
    Path(folder).mkdir()
    for number in range(int(count)):
        array = source.integers(1 << 30, size=1 << 17, dtype="int64")
        numpy.save(f"{folder}/{number:04}.npy", array)


if __name__ == "__main__":
    functions = (duckdb, numpy, lmdb, lmdb_make, numpy_make)
    {function.__name__: function for function in functions}[sys.argv[1]](*sys.argv[2:])
