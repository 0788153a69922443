/* Does what its arguments say, once it has read a byte: MODE FILE [OFFSET LENGTH]... */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char buffer[4 << 20] __attribute__((aligned(4096)));

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Reads into a pipe: at the offset, if there is one, or at the file's position. */
static ssize_t spliced(int fd, off_t *offset, size_t length)
{
	int ends[2];
	ssize_t done;

	if (pipe(ends))
		err(1, "pipe");
	done = splice(fd, offset, ends[1], NULL, length, 0);
	close(ends[0]);
	close(ends[1]);
	return done;
}

/* Moves the position by the system call of 32-bit x86. For one of 64 bits, a descriptor is where
 * that of a read would be. Programs for other processors have one kind of calls alone. */
static long position_by_32_bits(int fd, int offset)
{
#ifdef __x86_64__
	long done;

	__asm__ volatile("int $0x80"
			 : "=a"(done)
			 : "a"(19), "b"(fd), "c"(offset), "d"(SEEK_SET), "D"(fd)
			 : "memory", "r8", "r9", "r10", "r11");
	return done;
#else
	return lseek(fd, offset, SEEK_SET);
#endif
}

static void access_file(const char *mode, int fd, off_t offset, size_t length)
{
	ssize_t done = 0;
	struct iovec parts[] = {
		{ .iov_base = buffer, .iov_len = length / 2 },
		{ .iov_base = buffer + length / 2, .iov_len = length - length / 2 },
	};

	if (!strcmp(mode, "pread") || !strcmp(mode, "fork")) {
		done = pread(fd, buffer, length, offset);
	} else if (!strcmp(mode, "read")) {
		lseek(fd, offset, SEEK_SET);
		done = read(fd, buffer, length);
	} else if (!strcmp(mode, "each")) {
		for (size_t at = 0; at < length && done >= 0; at += 4096)
			done = pread(fd, buffer, 4096, offset + at);
	} else if (!strcmp(mode, "time")) {
		/* As often as the length says: prints how long one takes. */
		double start = now_ns();
		for (size_t count = 0; count < length && done >= 0; count++)
			done = pread(fd, buffer, 4096, offset);
		printf("%.1f\n", (now_ns() - start) / length);
		fflush(stdout);
	} else if (!strcmp(mode, "pwrite")) {
		done = pwrite(fd, buffer, length, offset);
	} else if (!strcmp(mode, "drop")) {
		done = -posix_fadvise(fd, offset, length, POSIX_FADV_DONTNEED);
	} else if (!strcmp(mode, "sendfile")) {
		int to = open("/dev/null", O_WRONLY);
		done = sendfile(to, fd, &offset, length);
		close(to);
	} else if (!strcmp(mode, "sendfile at position")) {
		int to = open("/dev/null", O_WRONLY);
		lseek(fd, offset, SEEK_SET);
		done = sendfile(to, fd, NULL, length);
		close(to);
	} else if (!strcmp(mode, "readv")) {
		lseek(fd, offset, SEEK_SET);
		done = readv(fd, parts, 2);
	} else if (!strcmp(mode, "preadv")) {
		done = preadv(fd, parts, 2, offset);
	} else if (!strcmp(mode, "preadv2")) {
		done = preadv2(fd, parts, 2, offset, 0);
	} else if (!strcmp(mode, "preadv2 at position")) {
		lseek(fd, offset, SEEK_SET);
		done = preadv2(fd, parts, 2, -1, 0);
	} else if (!strcmp(mode, "splice")) {
		done = spliced(fd, &offset, length);
	} else if (!strcmp(mode, "splice at position")) {
		lseek(fd, offset, SEEK_SET);
		done = spliced(fd, NULL, length);
	} else if (!strcmp(mode, "copy_file_range")) {
		/* Of the same file system: that of the tests' files. */
		int to = open("/var/tmp", O_TMPFILE | O_RDWR, 0600);
		done = copy_file_range(fd, &offset, to, NULL, length, 0);
		close(to);
	} else if (!strcmp(mode, "direct")) {
		if (fcntl(fd, F_SETFL, O_DIRECT))
			err(1, "O_DIRECT");
		done = pread(fd, buffer, length, offset);
	} else if (!strcmp(mode, "32 bits")) {
		done = position_by_32_bits(fd, offset);
	} else if (!strcmp(mode, "mmap")) {
		size_t size = offset + length;
		volatile char *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
		if (at == MAP_FAILED)
			err(1, "mmap");
		for (size_t touched = 0; touched < length; touched += 4096)
			(void)at[offset + touched];
		munmap((void *)at, size);
	} else {
		errx(2, "no mode %s", mode);
	}
	if (done < 0)
		err(1, "%s", mode);
}

static void access_all(char **arguments)
{
	int fd = open(arguments[1], strcmp(arguments[0], "pwrite") ? O_RDONLY : O_RDWR);

	if (fd < 0)
		err(1, "%s", arguments[1]);
	/* Each at all offsets, one call after the other. */
	for (char *mode = strtok(arguments[0], ","); mode; mode = strtok(NULL, ","))
		for (char **at = arguments + 2; at[0] && at[1]; at += 2)
			access_file(mode, fd, atol(at[0]), atol(at[1]));
	close(fd);
}

int main(int count, char **arguments)
{
	char go;

	if (count < 3 || write(1, "r", 1) != 1 || read(0, &go, 1) != 1)
		return 2;
	if (strcmp(arguments[1], "fork")) {
		access_all(arguments + 1);
		return 0;
	}
	/* A grandchild does it. */
	for (int depth = 0; depth < 2; depth++) {
		pid_t child = fork();
		int status;
		if (child < 0)
			err(1, "fork");
		if (child)
			return waitpid(child, &status, 0) == child ? status : 1;
	}
	access_all(arguments + 1);
	return 0;
}
