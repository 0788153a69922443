/* A plug-in with a runtime of its own in it, of one thread, that counts its calls. */
typedef void function(void *);

static int regions, barriers;
void (*through_host)(void (*)(void));

void GOMP_parallel(function *region, void *argument, unsigned threads, unsigned flags)
{
    region(argument);
    regions++;
}

void GOMP_barrier(void)
{
    barriers++;
}

static void meet(void)
{
    GOMP_barrier();
}

static void region(void *argument)
{
    meet();
}

void take_step(void)
{
    GOMP_parallel(region, 0, 0, 0);
}

int told(int what)
{
    return what ? barriers : regions;
}
