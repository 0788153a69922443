import java.util.HashMap;
import java.util.Random;

/** A heap under load: four threads fill maps with arrays. By a JDK: java Heap.java [ARRAYS] */
public class Heap {
    public static void main(String[] arguments) throws InterruptedException {
        int arrays = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 3_000_000;
        Thread[] threads = new Thread[4];
        for (int number = 0; number < threads.length; number++) {
            Random random = new Random(number);
            threads[number] = new Thread(() -> fill(random, arrays));
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void fill(Random random, int arrays) {
        HashMap<Integer, byte[]> map = new HashMap<>();
        for (int array = 0; array < arrays; array++) {
            map.put(random.nextInt(100_000), new byte[100 + random.nextInt(400)]);
        }
        System.out.println(map.size());
    }
}
